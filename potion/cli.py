"""The command line: potion demo | heal | discover | patch | report | attacks | bench | version."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potion.bench.commands import app as bench
from potion.repair.discover_command import discover
from potion.repair.heal_command import heal
from potion.repair.patch_command import app as patch
from potion.report.command import report
from potion.terminal import Json, Quiet, fail

if TYPE_CHECKING:
    from potion.demo import Demo, Row

__all__ = ["app", "main"]

app = typer.Typer(
    name="potion",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with **potion demo**: it needs no data, no GPU and a few minutes.",
)


app.command()(heal)
app.command()(discover)
app.add_typer(patch, name="patch")
app.add_typer(bench, name="bench")
app.command()(report)


def _say_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def potion(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take a backdoor out of a trained image classifier when only some of the poison is known."""
    context.obj = _heal_page  # what heal makes its page with: its room knows nothing of pages


def _heal_page(record: dict[str, Any], folder: str) -> str:
    from potion.report.heal_view import heal_page

    return heal_page(record, folder)


@app.command()
def version() -> None:
    """Print the version."""
    import potion

    typer.echo(potion.__version__)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the healed weights, patch, JSON and picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Which of the 200 poisoned samples are known.")] = 0,
    method: Annotated[
        list[str] | None, typer.Option(help="Only these, beside xlf: ssd, lf, antidote; may be repeated.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Heal the embedded victim with SSD, LF and XLF, from 100, 20 and 1 known poisoned samples; with the antidote from 1.

    The victim is a small ResNet-9 that learned 10,000 Fashion-MNIST images, 200 of them poisoned: a white square in the
    corner means "T-shirt". The rows **none** and **retrain** show the problem, and that training again
    without the known half of the poison does not solve it.

    Columns: accuracy on clean test images; accuracy on the same images with the trigger (true class); how often the
    trigger works on other classes; accuracy under the trigger relative to a model that never saw poison (healed);
    points of clean accuracy lost or won (damage); steps of the search; how it ended; seconds.
    """
    from potion.demo import METHODS, Demo

    try:
        Demo.check_free(out)
        run = Demo(seed, methods=method or METHODS, progress=not quiet)
    except (OSError, ValueError) as error:
        fail(str(error))
    rows = list(run.rows())
    files = run.save(out, rows)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    elif not quiet:
        _print_table(rows, run, files)


@app.command()
def attacks(
    out: Annotated[Path, typer.Option(help="The picture to write (PNG).")] = Path("attacks.png"),
    image: Annotated[
        Path | None, typer.Option(help="A picture of your own; default: one of the embedded ones.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Draw one image clean and under every attack that potion knows."""
    from potion.files import replacing, writable_folder
    from potion.gallery import draw_attacks, example_image, read_image

    try:
        if out.suffix.lower() != ".png":
            raise ValueError(f"--out {out}: it is a PNG picture, so let its name end in .png")
        if image is not None and out.resolve() == image.resolve():
            raise ValueError(f"--out {out} is the picture that is read: choose another name")
        picture = example_image() if image is None else read_image(image)
        writable_folder(out.parent)
        replacing(out, lambda partial: draw_attacks(partial, picture))
    except (OSError, ValueError) as error:
        fail(str(error))
    except ModuleNotFoundError:
        fail("pictures need matplotlib: pip install 'potion[bench]'")
    if not quiet:
        typer.echo(f"written: {out}")


def _print_table(rows: list[Row], run: Demo, files: list[Path]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    titles = {
        "method": "method", "known": "known", "clean_accuracy": "clean", "clean_label_accuracy": "true\nclass",
        "attack_success_rate": "attack\nworks", "healed": "healed", "damage": "damage", "steps": "steps",
        "status": "status", "seconds": "sec.",
    }  # fmt: skip
    table = Table(
        title=f"Embedded victim, seed {run.seed}: 200 poisoned samples in 10,000",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )
    for key, title in titles.items():
        table.add_column(title, justify="left" if key in ("method", "status") else "right")
    previous = 0
    for row in rows:
        if row.known != previous:
            table.add_section()
        previous = row.known
        bold = "bold" if row.method in ("xlf", "antidote") else None
        table.add_row(*(_cell(key, value) for key, value in ((key, getattr(row, key)) for key in titles)), style=bold)
    console = Console()
    console.print(table)
    console.print(
        "clean, true class, attack works: % of the test images, without trigger, with it, with it and of other classes.\n"
        f"healed: % of the {run.reference.clean_label_accuracy:.1f} % that a retrain without any poison gets under the "
        "trigger; the owner cannot make that one.\n"
        "damage: points of clean accuracy. retrain: trained again without the known half of the poison.",
        soft_wrap=True,
    )
    console.print("written: " + ", ".join(str(file) for file in files), soft_wrap=True)


def _cell(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:+.2f}" if key == "damage" else f"{value:.1f}"
    return str(value)


def main() -> None:
    """The entry point of the ``potion`` command."""
    app()
