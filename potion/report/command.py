"""``potion report``: from result files to a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potion.terminal import Quiet, fail

__all__ = ["report"]


def report(
    source: Annotated[
        Path,
        typer.Argument(help="A result.json, the folder that it lies in, or a folder with results of the benchmark."),
    ],
    out: Annotated[Path, typer.Option(help="The page to write (HTML).")] = Path("report.html"),
    force: Annotated[bool, typer.Option("--force", help="Write over a page that is there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make one HTML page out of results: it needs no network, no server and nothing beside it.

    Of a heal it shows how it ended, the scores before and after, and what another rho would have done; of the benchmark a
    leaderboard with filters, and curves over the known share.
    """
    from potion.files import replacing, writable_folder
    from potion.report.checks import ReportError
    from potion.report.source import page_of

    if out.is_dir():
        fail(f"--out {out} is a folder: name a file, like {out / 'report.html'}")
    if out.suffix.lower() not in (".html", ".htm"):
        fail(f"--out {out}: it is a page, so let its name end in .html")
    try:
        page = page_of(source)
        if out.exists() and not force:
            fail(f"{out} is there already: choose another --out, or write over it with --force")
        writable_folder(out.parent)
        replacing(out, lambda partial: partial.write_text(page.html, encoding="utf-8"))
    except (ReportError, OSError) as error:
        fail(str(error))
    if not quiet:
        for note in page.notes:
            typer.echo(f"potion: {note}", err=True)
        typer.echo(f"written: {out}")
