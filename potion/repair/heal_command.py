"""``potion heal``: from files to a folder with the repaired weights, the patch, the record and its page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from potion.heal import METHODS
from potion.repair import options
from potion.terminal import Json, Quiet, fail

__all__ = ["heal"]


def heal(
    context: typer.Context,
    model: options.Model = None,
    model_arg: options.ModelArg = None,
    weights: options.Weights = None,
    data: options.Data = None,
    known: options.Known = None,
    out: Annotated[Path | None, typer.Option(help="The folder for the results.")] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}; xlf is the paper's.")] = "xlf",
    rho: Annotated[float, typer.Option(help="Stop when so much of the known poison's accuracy is left.")] = 0.2,
    strategy: Annotated[
        str, typer.Option(help="sequential walks; bisect looks less often, and leaves --from less to choose from.")
    ] = "sequential",
    step: Annotated[float, typer.Option(help="How much further each step of the search goes: 1.1 is 10 %.")] = 1.1,
    retain_share: Annotated[
        float | None,
        typer.Option(help="The part of the training data to compare with; default: 0.3, but at least 24 batches."),
    ] = None,
    clean: Annotated[
        str | None, typer.Option(help="Clean test data, to score before, after and along the search.")
    ] = None,
    triggered: Annotated[
        str | None, typer.Option(help="Test images with the trigger, in folders of their true class, to score.")
    ] = None,
    size: options.Size = None,
    padding: options.Padding = 0,
    flip: options.Flip = False,
    mean: options.Mean = None,
    std: options.Std = None,
    batch_size: options.BatchSize = 512,
    device: options.Device = None,
    seed: options.Seed = 0,
    workers: options.Workers = 0,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="The folder of an earlier heal: choose another --rho, without the data."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and how long; write nothing.")
    ] = False,
    force: options.Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take a backdoor out of a model of your own.

    **Example**: potion heal --model resnet18 --weights model.pt --data images/train --known poison.txt --out healed

    The model is any Python function that returns one (--model my.code:make --model-arg width=16), a model of timm, one of
    potion's, or a Hugging Face folder. The known poison is listed by file name or index, one a line. Try it first with
    --dry-run. Give the augmentation that training used (--padding 4 --flip), and --mean and --std where it normalised.

    --out gets healed.pt (in the format of --weights), patch.safetensors (small, and can be undone: **potion patch**),
    result.json, report.html to open in a browser, and importances.safetensors, from which another stopping point is chosen
    without the data: search once with a low --rho, then **potion heal --from healed --rho 0.3 --out milder**.

    Several GPUs or machines share the work: torchrun --nproc-per-node 2 -m potion heal ...

    Exit code: 0 healed, 3 not healed (the weights stay as they are, result.json says why), 2 usage or bad input.
    """
    from potion.repair.processes import Refused
    from potion.repair.session import Output, Talk, run_choice, run_heal
    from potion.repair.settings import Settings, model_arguments, numbers

    try:
        talk: Talk = "json" if as_json else "nothing" if quiet else "text"
        folder = out if dry_run else options.needed("--out", out)
        output = Output(folder=folder, page=context.obj, force=force, talk=talk, progress=not quiet)
        if source is not None:
            _check_beside_from(context)
            sys.exit(run_choice(source, rho, weights, output))
        settings = Settings(
            model=options.needed("--model", model), data=options.needed("--data", data),
            known=options.needed("--known", known), weights=weights, model_args=model_arguments(model_arg or []),
            method=method, rho=rho, step=step, strategy=strategy, retain_share=retain_share,
            batch_size=batch_size, seed=seed, workers=workers, size=size, padding=padding, flip=flip,
            mean=numbers("--mean", mean), std=numbers("--std", std), clean=clean, triggered=triggered,
        )  # fmt: skip
        sys.exit(run_heal(settings, device, output, dry_run=dry_run))
    except (Refused, ValueError) as error:
        speaks = os.environ.get("RANK", "0") == "0" or getattr(error, "alone", False)
        if not speaks:
            sys.exit(2)
        fail(" ".join(str(error).split()))
    except KeyboardInterrupt as stop:
        fail(str(stop) or "stopped; nothing was written", 130)


def _check_beside_from(context: typer.Context) -> None:
    """All but the stopping point is settled by the earlier heal; an option that would be ignored is refused."""
    free = {"source", "rho", "weights", "out", "force", "as_json", "quiet"}
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if given is not None and given.name == "COMMANDLINE" and parameter.name not in free:
            raise ValueError(f"{parameter.opts[0]} does not go with --from, which takes all but --rho from there")
