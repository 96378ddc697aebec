"""The folder that a heal leaves: all of its files or none, and never over somebody's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from potion.files import replacing, writable_folder
from potion.types import Importances

__all__ = [
    "IMPORTANCES", "ORIGINAL", "PATCH", "REPORT", "RESULT", "all_or_nothing", "check_free", "load_importances",
    "save_importances",
]  # fmt: skip

RESULT: Final = "result.json"
REPORT: Final = "report.html"
PATCH: Final = "patch.safetensors"
IMPORTANCES: Final = "importances.safetensors"
ORIGINAL: Final = "original.safetensors"
SUFFIXES: Final = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
KINDS: Final = ("retain", "forget")


def check_free(folder: Path, *, force: bool, inputs: Collection[Path] = ()) -> None:
    """Refuse a folder with results in it, unless they may go; files that are read are never written over."""
    there = _outputs(folder)
    for path in there:
        if any(path.resolve() == each.resolve() for each in inputs):
            raise ValueError(f"--out {folder}: {path} is read by this command; choose another folder for the results")
    if there and not force:
        shown = ", ".join(path.name for path in there)
        raise FileExistsError(
            f"--out {folder} already holds {shown}: choose another folder, or write over with --force"
        )


@contextmanager
def all_or_nothing(folder: Path, keep: Collection[str] = ()) -> Iterator[Path]:
    """A folder to write into. Its files appear in ``folder`` at the end, in the place of an earlier heal's (but ``keep``).

    Whatever goes wrong before, ``folder`` is as it was, and not there if it was not.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    writable_folder(folder)
    partial = folder / f".{os.getpid()}.part"
    try:
        partial.mkdir()
        try:
            yield partial
        except SafetensorError as error:  # how a full disk reaches us from there
            raise OSError(str(error)) from error
        new = sorted(partial.iterdir(), key=lambda path: path.name == RESULT)
        for path in new:
            path.replace(folder / path.name)
        for path in _outputs(folder):
            if path.name not in {*keep, *(each.name for each in new)}:
                path.unlink()
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        for place in made:
            with suppress(OSError):  # not empty: it is used
                place.rmdir()


def save_importances(path: Path, retain: Importances, forget: Importances) -> None:
    """Both kinds, to choose another point of the search later."""
    both = zip(KINDS, (retain, forget), strict=True)
    tensors = {f"{kind}.{name}": t.cpu().contiguous() for kind, found in both for name, t in found.items()}
    replacing(path, lambda partial: save_file(tensors, partial))


def load_importances(path: Path) -> tuple[Importances, Importances]:
    """What :func:`save_importances` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file: {error}") from error
    retain, forget = (
        {key.partition(".")[2]: tensor for key, tensor in tensors.items() if key.startswith(f"{kind}.")}
        for kind in KINDS
    )
    return retain, forget


def _outputs(folder: Path) -> list[Path]:
    names = (RESULT, REPORT, PATCH, IMPORTANCES, ORIGINAL, *(f"healed{suffix}" for suffix in SUFFIXES))
    return [folder / name for name in sorted(names) if (folder / name).is_file()]
