"""``potion patch``: show | apply | revert | diff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from potion.terminal import Json, Quiet, fail

if TYPE_CHECKING:
    from potion.patch import Patch

__all__ = ["app"]

app = typer.Typer(
    help="A repair as a small file: look at it, apply it, undo it bit by bit, compare two.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="**Example**: potion patch revert healed/patch.safetensors healed/healed.pt --out back.pt",
)

PatchFile = Annotated[Path, typer.Argument(metavar="PATCH", help="A patch.safetensors.")]
Weights = Annotated[Path, typer.Argument(help="safetensors, .pt, .pth or .ckpt; it is only read.")]
Out = Annotated[Path, typer.Option(help="The file to write, in the format of WEIGHTS.")]
Force = Annotated[bool, typer.Option("--force", help="Write over OUT.")]


@app.command()
def show(patch: PatchFile, as_json: Json = False, quiet: Quiet = False) -> None:
    """Which layers, how many weights, how strongly."""
    from potion.repair.patching import layers
    from potion.repair.shown import print_layers

    found = _loaded(patch)
    told = {key: value for key, value in found.metadata.items() if key not in ("names", "sizes")}
    record = {**told, "before": found.before, "after": found.after, "weights": found.count, "layers": layers(found)}
    if as_json:
        typer.echo(json.dumps(record, indent=1))
    if as_json or quiet:
        return
    print_layers(record["layers"])
    factors = [end for change in found.changes.values() for end in (change.factors.min(), change.factors.max())]
    ends = f"; each is multiplied by {_short(float(min(factors)))} to {_short(float(max(factors)))}" if factors else ""
    typer.echo(f"{found.count:,} weights in {len(found.changes)} layers{ends}.")
    settings = [f"{key} {_short(told[key])}" for key in ("method", "rho", "s", "alpha", "known") if key in told]
    typer.echo(f"{', '.join(settings)}{'; ' * bool(settings)}for weights with the fingerprint {found.before[:12]}")


@app.command()
def apply(patch: PatchFile, weights: Weights, out: Out, force: Force = False, quiet: Quiet = False) -> None:
    """Repair the weights that the patch was made for; others are refused."""
    _patch("apply", patch, weights, out, force=force, quiet=quiet)


@app.command()
def revert(patch: PatchFile, weights: Weights, out: Out, force: Force = False, quiet: Quiet = False) -> None:
    """Undo a repair, bit by bit."""
    _patch("revert", patch, weights, out, force=force, quiet=quiet)


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(help="A patch.safetensors.")],
    two: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What two patches have in common: weights that both change, that one does, and how far the factors are apart."""
    from potion.repair.patching import compared
    from potion.repair.shown import table

    first, second = _loaded(one), _loaded(two)
    rows = compared(first, second)
    record = {"same_weights_before": first.before == second.before, "same_after": first.after == second.after}
    if as_json:
        typer.echo(json.dumps({**record, "layers": rows}, indent=1))
    if as_json or quiet:
        return
    cells = [[_short(value) for value in row.values()] for row in rows]
    table(["layer", "both", "first only", "second only", "factors apart, at most"], cells)
    if not record["same_weights_before"]:
        typer.echo("They are patches of different weights.")
    else:
        typer.echo("Both lead to the same weights." if record["same_after"] else "They lead to different weights.")


def _patch(verb: Literal["apply", "revert"], path: Path, weights: Path, out: Path, *, force: bool, quiet: bool) -> None:
    from potion.checkpoint import read_checkpoint
    from potion.files import writable_folder
    from potion.fingerprint import stored_tensors
    from potion.repair.patching import matching
    from potion.repair.processes import BAD_INPUT

    patch = _loaded(path)
    try:
        if out.suffix != weights.suffix:
            raise ValueError(f"--out {out}: the weights keep their format, so it must end in {weights.suffix!r}")
        if out.exists() and (not force or out.resolve() in (weights.resolve(), path.resolve())):
            if force:
                raise FileExistsError(f"--out {out} is read by this command: choose another name")
            raise FileExistsError(f"--out {out} is there already: choose another name, or write over it with --force")
        checkpoint = read_checkpoint(weights)
        names, module = matching(patch, checkpoint)
        getattr(patch, verb)(module)
        writable_folder(out.parent)
        checkpoint.write(stored_tensors(module), names, out)
    except KeyboardInterrupt:
        fail("stopped; nothing was written", 130)
    except BAD_INPUT as error:
        fail(" ".join(str(error).split()))
    if not quiet:
        done = "changed" if verb == "apply" else "put back"
        typer.echo(f"{patch.count:,} weights {done}; written: {out}")


def _loaded(path: Path) -> Patch:
    from potion.patch import Patch
    from potion.repair.folder import PATCH

    if path.is_dir():
        fail(f"{path} is a folder: name the patch in it, like {path / PATCH}")
    try:
        return Patch.load(path)
    except FileNotFoundError:
        fail(f"no patch at {path}")
    except (OSError, ValueError) as error:
        fail(str(error))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)
