"""Files that are complete or not there: written under another name, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_json", "writable_folder"]


def replacing(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> None:
    """Call ``write`` with a temporary name beside ``path``, then put what it wrote in the place of ``path``."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as readable, strict JSON."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    replacing(path, lambda partial: partial.write_text(text))


def writable_folder(path: str | os.PathLike[str]) -> Path:
    """The folder ``path``, made where it is missing; an ``OSError`` in words where nothing can be written there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"cannot write to the folder {folder}: {error.strerror}; choose another one") from error
    return folder
