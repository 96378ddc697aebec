"""Files that are complete or not there: written under another name, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

__all__ = ["check_writable", "replacing", "write_json", "writable_folder"]


def replacing(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> None:
    """Call ``write`` with a temporary name beside ``path``, then put what it wrote in the place of ``path``.

    Whoever writes, a full disk is an ``OSError``.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(partial)
        partial.replace(path)
    except SafetensorError as error:
        raise OSError(f"cannot write {path.name}: {error}") from error
    except RuntimeError as error:
        if "inline_container" not in str(error):  # torch's writer, which does not tell what the disk said
            raise
        raise OSError(f"cannot write {path.name}: no space left, or the disk is broken") from error
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as readable, strict JSON."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    replacing(path, lambda partial: partial.write_text(text))


def writable_folder(path: str | os.PathLike[str]) -> Path:
    """The folder ``path``, made where it is missing; an ``OSError`` in words where nothing can be written there."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"cannot write to the folder {folder}: it is a file; choose another one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"cannot write to the folder {folder}: {error.strerror}; choose another one") from error
    return folder


def check_writable(path: str | os.PathLike[str]) -> None:
    """An ``OSError`` in words where the folder ``path`` could not be made or written to; nothing is made."""
    folder = Path(path)
    writable_folder(next(place for place in (folder, *folder.absolute().parents) if place.exists()))
