"""``potion bench speed``: the command around :mod:`potion.bench.speed`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from potion.bench.options import print_table
from potion.terminal import Json, Quiet, fail

__all__ = ["speed"]


def speed(
    workload: Annotated[
        str | None,
        typer.Option(
            help="embedded, cifar10, resnet9, wrn28x10, vit-tiny or vit-base; default: resnet9 on a GPU, else embedded."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ...; default: the best there is.")] = None,
    method: Annotated[Literal["xlf", "lf", "ssd"], typer.Option(help="Which importances.")] = "xlf",
    known: Annotated[int, typer.Option(min=1, help="How much of the poison is known.")] = 250,
    images: Annotated[
        int | None, typer.Option(min=1024, help="Take so many training images; default: the workload's own.")
    ] = None,
    precision: Annotated[
        Literal["float32", "tf32", "bfloat16"] | None,
        typer.Option(help="Of the importances; default: as torch is set up, TF32 convolutions on a GPU."),
    ] = None,
    retain_share: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Of the training set, for its importances; default: heal's own."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Medians are over so many, after a warm-up.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the JSON and the figure.")] = Path("results/speed"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure what healing costs here: seconds a phase, ratios to a plain pass, FLOP/s, memory, and how it grows.

    Everything is taken in one run on an idle machine; what is compared is measured in turns.
    """
    from potion.bench import workloads
    from potion.bench.speed import measured
    from potion.bench.speed_figure import draw_speed
    from potion.files import replacing, writable_folder, write_json
    from potion.runtime import best_device
    from potion.validation import known_device

    def tell(what: str) -> None:
        if not (quiet or as_json):
            typer.echo(f"{what} ...", err=True)

    try:
        place = best_device() if device is None else known_device(device)
        folder = writable_folder(out)
        name = workload or ("resnet9" if place.type == "cuda" else "embedded")
        tell(f"making the victim ({name})")
        found = measured(
            workloads.workload(name, place, images),
            place,
            repeats=repeats,
            count=known,
            method=method,
            tell=tell,
            precision=precision,
            retain_share=retain_share,
        )
    except (OSError, ValueError, ModuleNotFoundError) as error:
        fail(str(error))
    variant = ([precision] if precision else []) + ([] if retain_share is None else [f"{retain_share:.0%}"])
    file = folder / f"{'-'.join([place.type, name, method, *variant])}.json"
    write_json(file, found)
    if importlib.util.find_spec("matplotlib") is not None:
        replacing(file.with_suffix(".png"), lambda partial: draw_speed(partial, found))
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    elif not quiet:
        _print_speed(found)
        typer.echo(f"written: {file}")


def _print_speed(found: dict[str, Any]) -> None:
    rows = [["heal", f"{found['heal_seconds']:.3f} s"]]
    rows += [[f"  {phase}", f"{seconds:.3f} s"] for phase, seconds in found["phases"].items()]
    rows += [[name, f"{ratio:.3f}"] for name, ratio in found["ratios"].items()]
    rows += [[f"images/s, {name}", f"{value:,.0f}"] for name, value in found["images_per_second"].items()]
    if found["steps_per_second"] is not None:
        rows += [["search steps", str(found["steps"])], ["search steps/s", f"{found['steps_per_second']:,.0f}"]]
    if found["memory"] is not None:
        over = found["memory"]["over model and activations, in weights"]
        rows += [["peak memory over model and activations, in weights", f"{over:.2f}"]]
    for count, search in found["searches"].items():
        share = search["seconds"] / found["importance_pass_seconds"]
        rows += [[f"search / importance pass, {count} known ({search['steps']} steps)", f"{share:.3f}"]]
    for name, series in found["scaling"].items():
        rows += [
            [f"grows with {name}: exponent", f"{series['exponent']:.2f}"],
            ["  intercept", f"{series['intercept']:.4f} s"],
        ]
    print_table([f"{found['workload']}, {found['known']} known", found["machine"]["device"]], rows)
