"""The folder that a heal leaves: all of its files or none, and never over somebody's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from potion.files import replacing, writable_folder
from potion.types import Importances

__all__ = [
    "IMPORTANCES", "ORIGINAL", "PATCH", "REPORT", "RESULT", "all_or_nothing", "check_free", "link", "load_importances",
    "outputs", "save_importances",
]  # fmt: skip

RESULT: Final = "result.json"
REPORT: Final = "report.html"
PATCH: Final = "patch.safetensors"
IMPORTANCES: Final = "importances.safetensors"
ORIGINAL: Final = "original.safetensors"
SUFFIXES: Final = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
KINDS: Final = ("retain", "forget")


def check_free(folder: Path, *, force: bool, inputs: Collection[Path] = ()) -> None:
    """Refuse a folder with results in it, unless they may go; files that are read are never written over.

    The healed weights will end as those among the ``inputs`` do, whatever that is.
    """
    there = outputs(folder, {path.suffix for path in inputs})
    for path in there:
        if any(path.resolve() == each.resolve() for each in inputs):
            raise ValueError(f"--out {folder}: {path} is read by this command; choose another folder for the results")
    if there and not force:
        shown = ", ".join(path.name for path in there)
        raise FileExistsError(
            f"--out {folder} already holds {shown}: choose another folder, or write over with --force"
        )


@contextmanager
def all_or_nothing(folder: Path, old: Collection[Path] = ()) -> Iterator[Path]:
    """A folder to write into. Its files appear in ``folder`` at the end, in the place of the ``old`` ones.

    Whatever goes wrong before, ``folder`` is as it was, and not there if it was not.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    writable_folder(folder)
    partial = folder / f".{os.getpid()}.part"
    try:
        partial.mkdir()
        yield partial
        new = {path: folder / path.name for path in sorted(partial.iterdir(), key=lambda path: path.name == RESULT)}
        with _undisturbed():
            for path, target in new.items():
                path.replace(target)
            for path in {*old} - {*new.values()}:
                path.unlink()
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        for place in made:
            with suppress(OSError):  # not empty: it is used
                place.rmdir()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits for the end of the block; in other threads, and where it means something else, it is not ours."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    waiting: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if waiting:
        raise KeyboardInterrupt("stopped; all had been written")


def link(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where the disk has no such links; nothing ever writes into a file."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def save_importances(path: Path, retain: Importances, forget: Importances) -> None:
    """Both kinds, to choose another point of the search later."""
    both = zip(KINDS, (retain, forget), strict=True)
    tensors = {f"{kind}.{name}": t.cpu().contiguous() for kind, found in both for name, t in found.items()}
    replacing(path, lambda partial: save_file(tensors, partial))


def load_importances(path: Path) -> tuple[Importances, Importances]:
    """What :func:`save_importances` wrote."""
    if not path.is_file():
        raise FileNotFoundError(
            f"no {path}, without which no other point can be chosen: give the folder of the first heal, which has it, or "
            "heal again on the data"
        )
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


def outputs(folder: Path, suffixes: Collection[str] = ()) -> list[Path]:
    """What lies in ``folder`` under the names that a heal writes to, also to healed weights with one of the ``suffixes``."""
    ends = {*SUFFIXES, *suffixes, *_earlier_suffix(folder)}
    names = (RESULT, REPORT, PATCH, IMPORTANCES, ORIGINAL, *(f"healed{suffix}" for suffix in ends))
    return [folder / name for name in sorted(names) if (folder / name).is_file()]


def _earlier_suffix(folder: Path) -> list[str]:
    """How the healed weights of an earlier heal end: as those that it was given, where they were a file."""
    try:
        return [Path(json.loads((folder / RESULT).read_text())["weights_file"]).suffix]
    except (OSError, ValueError, KeyError, TypeError):
        return []
