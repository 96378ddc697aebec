"""The options that say which model, which data and which poison: the same for every command that opens them."""

from __future__ import annotations

from typing import Annotated, TypeVar

import typer

__all__ = [
    "BatchSize", "Data", "Device", "Flip", "Force", "Known", "Mean", "Model", "ModelArg", "Padding", "Seed", "Size", "Std",
    "Weights", "Workers", "needed",
]  # fmt: skip

T = TypeVar("T")

Model = Annotated[
    str | None,
    typer.Option(help="package.module:function, a name of timm or of potion, or a Hugging Face folder."),
]
ModelArg = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An argument for the model, as JSON or text; repeat it."),
]
Weights = Annotated[
    str | None, typer.Option(help="safetensors, .pt, .pth or .ckpt. Default: those that the model brings along.")
]
Data = Annotated[
    str | None, typer.Option(help="The training data: a folder a class, parquet, a data set's name or hub id.")
]
Known = Annotated[
    str | None,
    typer.Option(help="The known poison: a text, CSV or JSON list of file names or indices; or 17,4021."),
]
Size = Annotated[int | None, typer.Option(min=1, help="Bring images to so many pixels (their middle square).")]
Padding = Annotated[int, typer.Option(min=0, help="Training cropped at random from images padded so far.")]
Flip = Annotated[bool, typer.Option("--flip", help="Training mirrored images at random.")]
Mean = Annotated[
    str | None,
    typer.Option(
        help="What training subtracted from [0, 1] pixels: 0.49,0.48,0.45. Default: what timm's models and Hugging Face "
        "folders say, else nothing."
    ),
]
Std = Annotated[str | None, typer.Option(help="What it divided by then.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples a batch.")]
Device = Annotated[str | None, typer.Option(help="cuda, cuda:1, cpu, ...; default: the best there is.")]
Seed = Annotated[int, typer.Option(min=0, help="Decides all that is random.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that decode images, where they stay on disk.")]
Force = Annotated[bool, typer.Option("--force", help="Write over results in --out.")]


def needed(option: str, value: T | None) -> T:
    """The value of an option that has no default, or a sentence that asks for it."""
    if value is None:
        raise ValueError(f"{option} is missing; --help shows an example")
    return value
