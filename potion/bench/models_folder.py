"""Trained models on disk, named by what went into them; a lock for each, so that nobody trains one twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from potion.files import replacing

__all__ = ["Busy", "ModelsFolder", "Trained", "claimed", "work_folder"]


class Busy(Exception):  # noqa: N818 (nothing went wrong)
    """Another runner is at this very thing."""


@dataclass(frozen=True)
class Trained:
    """A model and the seconds that its training took."""

    model: nn.Module
    seconds: float


class ModelsFolder:
    """``obtain`` gives a model, out of a file where there is one."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """The file of the model with that key."""
        return self.folder / f"{key}.safetensors"

    def put(self, key: str, content: bytes) -> None:
        """Store a model that was trained elsewhere."""
        replacing(self.path(key), lambda partial: partial.write_bytes(content))

    def taken(self, key: str) -> bytes:
        """The content of a model's file, which is then removed."""
        content = self.path(key).read_bytes()
        self.path(key).unlink()
        return content

    def remove(self, key: str) -> None:
        """Forget a model that nobody will ask for again."""
        self.path(key).unlink(missing_ok=True)

    def obtain(self, key: str, new: Callable[[], nn.Module], train: Callable[[Path], Trained]) -> Trained:
        """The model with that key: loaded into a ``new`` one, or trained, with a file for checkpoints meanwhile.

        The checkpoint goes when the model is stored, so no kill loses a training. :class:`Busy` where another process is
        training it now.
        """
        if (found := self._loaded(key, new)) is not None:
            return found
        with claimed(self.folder / f"{key}.lock"):
            if (found := self._loaded(key, new)) is not None:  # somebody has just finished it
                return found
            checkpoint = self.folder / f"{key}.training"
            trained = train(checkpoint)
            about = {"seconds": repr(trained.seconds)}
            replacing(self.path(key), lambda partial: save_model(trained.model, str(partial), about))
            checkpoint.unlink(missing_ok=True)
            return trained

    def _loaded(self, key: str, new: Callable[[], nn.Module]) -> Trained | None:
        path = self.path(key)
        if not path.exists():
            return None
        model = new()
        try:
            load_model(model, path)
            with safe_open(path, "pt") as file:
                return Trained(model.eval(), float(file.metadata()["seconds"]))
        except (SafetensorError, RuntimeError, KeyError, TypeError):  # damaged: train again
            path.unlink()
            return None


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``, which the system lets go even of a process that is killed; :class:`Busy` if held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise Busy(path.stem) from None
    try:
        yield
    finally:
        lock.release()


def work_folder(results: Path) -> Path:
    """The folder for what is not a result (models, locks) inside the results folder; git is told to leave it out."""
    folder = results / ".work"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder
