"""``potion discover``: a list of the training samples that are poison, and a picture of the first of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from potion.heal import METHODS
from potion.repair import options
from potion.terminal import Json, Quiet, fail

__all__ = ["discover"]

NOT_HEALED = 3


def discover(
    model: options.Model = None,
    model_arg: options.ModelArg = None,
    weights: options.Weights = None,
    data: options.Data = None,
    known: options.Known = None,
    out: Annotated[
        Path, typer.Option(help="The list to write; a picture of the first suspects goes beside it.")
    ] = Path("suspects.csv"),
    method: Annotated[
        str,
        typer.Option(help=f"The repair to compare with: {', '.join(METHODS)}. The antidote takes most away."),
    ] = "antidote",
    size: options.Size = None,
    padding: options.Padding = 0,
    flip: options.Flip = False,
    mean: options.Mean = None,
    std: options.Std = None,
    batch_size: options.BatchSize = 512,
    device: options.Device = None,
    seed: options.Seed = 0,
    workers: options.Workers = 0,
    force: options.Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the other poisoned samples of a training set, given some of them.

    **Example**: potion discover --model resnet18 --weights model.pt --data images/train --known poison.txt

    The model is healed, and every sample with the label of a known one is ranked by how much that label lost in the repair:
    what the trigger gave is gone. The list is a CSV file with one sample a line, the surest first; **poison** says on which
    side of the cut it lies, by an estimate where one in twenty would be a mistake. The first suspects are also drawn
    (suspects.png), so that one can look.

    Exit code: 0, or 3 where the model could not be healed, so that there is nothing to compare, or 2 for bad input.
    """
    from potion.repair.case import open_case
    from potion.repair.healing import heal_case
    from potion.repair.processes import BAD_INPUT
    from potion.repair.settings import Settings, model_arguments, numbers
    from potion.repair.suspects import discovered, write_suspects
    from potion.runtime import best_device
    from potion.types import Status
    from potion.validation import known_device

    try:
        _check_free(out, [weights, data, known], force=force)
        settings = Settings(
            model=options.needed("--model", model), data=options.needed("--data", data),
            known=options.needed("--known", known), weights=weights, model_args=model_arguments(model_arg or []),
            method=method, batch_size=batch_size, seed=seed, workers=workers, size=size, padding=padding, flip=flip,
            mean=numbers("--mean", mean), std=numbers("--std", std),
        )  # fmt: skip
        case = open_case(settings, best_device() if device is None else known_device(device))
        result = heal_case(case, progress=not quiet).result
        if result.status is not Status.HEALED:
            fail(f"nothing to compare with: {result.summary()}", NOT_HEALED)
        suspects = discovered(case, result)
        files = write_suspects(out, case, suspects)
    except BAD_INPUT as error:
        fail(" ".join(str(error).split()))
    except KeyboardInterrupt as stop:
        fail(str(stop) or "stopped; nothing was written", 130)
    if as_json:
        typer.echo(json.dumps({"suspects": len(suspects), "poison": suspects.poison}, indent=1))
    elif not quiet:
        typer.echo(f"{suspects.cut} of {len(suspects)} samples with the labels of known poison are taken to be poison")
        typer.echo("written: " + ", ".join(map(str, files)))


def _check_free(out: Path, inputs: Sequence[str | None], *, force: bool) -> None:
    """Refuse names that are taken, are read, or cannot be written, before anything is computed."""
    from potion.files import check_writable
    from potion.repair.suspects import sheet_of

    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file, like {out / 'suspects.csv'}")
    if out.suffix.lower() == ".png":
        raise ValueError(f"--out {out} is the list, and its picture would have the same name: call it {out.stem}.csv")
    for path in (out, sheet_of(out)):
        if any(path.resolve() == Path(each).resolve() for each in inputs if each):
            raise ValueError(f"--out {out}: {path} is read by this command; choose another name")
        if path.exists() and not force:
            raise ValueError(f"{path} is there already; --force writes over it")
    check_writable(out.parent)
