"""``potion bench tables | figures | replay``: from result files to what people read, and back to a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from potion.bench.options import RESULTS, Folder, Suites, everything, named_or_present, print_table, results_of
from potion.terminal import Json, Quiet, fail

__all__ = ["figures", "replay", "tables"]


def tables(
    suites: Suites = None,
    results: Folder = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder for the Markdown, LaTeX and CSV files.")] = Path("tables"),
    page: Annotated[
        Path | None,
        typer.Option(help="Also write all of it as one page, with the paper's claims; figures/ lies beside it."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the paper's tables, ours beside the published values; and one for every other suite that has results.

    Made from the result files alone. Missing cells are shown as missing, with the command that fills them.
    """
    from potion.bench.results_page import TITLE, results_page
    from potion.bench.tables import make, tables_for
    from potion.bench.typeset import as_markdown, write_table
    from potion.files import replacing, writable_folder

    if page is not None and page.exists() and not page.read_text(errors="replace").startswith(TITLE):
        fail(f"--page {page} is there already, and no page of results: choose another name")
    names = named_or_present(suites, results)
    for name in names:
        results_of(results, everything(name, results), quiet=quiet)
    try:
        folder = writable_folder(out)
        made = [make(spec, results) for spec in tables_for(names, everything=not suites)]
        for table in made:
            write_table(table, folder)
        text = "\n".join(as_markdown(table) for table in made)
        replacing(folder / "tables.md", lambda partial: partial.write_text(text))
        if page is not None:
            writable_folder(page.parent)
            drawn = [path.stem for path in page.with_name("figures").glob("*.svg")]
            whole = results_page(names, results, drawn)
            replacing(page, lambda partial: partial.write_text(whole))
    except OSError as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps([table.to_dict() for table in made], indent=1))
    elif not quiet:
        typer.echo(text)
        typer.echo(f"written: {folder}/ (tables.md, and each table as .md, .tex and .csv)")


def figures(
    suites: Suites = None,
    results: Folder = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder for the PNG and SVG files.")] = Path("figures"),
    quiet: Quiet = False,
) -> None:
    """Draw the paper's figures from the result files: curves, times, sensitivity, trade-off; and those without data."""
    from potion.files import writable_folder

    names = named_or_present(suites, results)
    try:
        folder = writable_folder(out)
        found = [results_of(results, everything(name, results), quiet=quiet) for name in names]
        if suites and not any(each.records for each in found):
            fail(
                f"no results of {', '.join(suites)} in {results}: run it (potion bench run {suites[0]}), or name the folder"
            )
        from potion.bench.figures import draw_all

        written = draw_all(found, folder)
    except OSError as error:
        fail(str(error))
    except ModuleNotFoundError:
        fail("figures need matplotlib: pip install 'potion[bench]'")
    if not quiet:
        typer.echo(f"written: {folder}/ {', '.join(written)} (.png and .svg)")


def replay(
    file: Annotated[Path, typer.Argument(help="A result file.")],
    results: Annotated[Path, typer.Option("--results", help="Where trained models are kept.")] = RESULTS,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ...; default: the best there is.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images, for sets that stream.")] = 0,
    tolerance: Annotated[float, typer.Option(min=0, help="Points by which scores may differ.")] = 0.5,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one result again from its own settings, and say whether it agrees.

    The victim is taken from RESULTS where it is kept, and trained again where it is not. Nothing is written over.
    Exit code: 0 it agrees, 3 it does not, 2 usage.
    """
    from potion.bench.replay import compared
    from potion.bench.results import ResultError

    try:
        verdict = compared(file, results, device=device, workers=workers, tolerance=tolerance)
    except (ResultError, OSError, ValueError, RuntimeError, ModuleNotFoundError) as error:
        fail(f"{file}: {error}")
    if as_json:
        typer.echo(json.dumps(verdict.to_dict(), indent=1))
    elif not quiet:
        print_table(["", "then", "now", "difference"], verdict.rows())
        typer.echo(verdict.sentence())
    raise typer.Exit(0 if verdict.agrees else 3)
