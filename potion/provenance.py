"""Where a figure comes from: time, versions, code, device."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import torch

from potion.version import __version__

__all__ = ["machine"]

HERE: Final = Path(__file__).parent


def machine(device: torch.device) -> dict[str, Any]:
    """Time, versions, code and device; no host names, no paths."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "potion": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "commit": _commit(HERE),
        "tree": _tree(HERE),
        "device": _device_name(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
    }


def _device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()})"


@cache
def _commit(folder: Path) -> str | None:
    """The commit that a folder of code is from, with a + where it was changed since; none outside a checkout."""
    try:
        _ours(folder)
        return _git(folder, "rev-parse", "HEAD") + ("+" if _git(folder, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def _tree(folder: Path) -> str | None:
    """What ``git rev-parse COMMIT:FOLDER`` says of a commit with just this code: it is found also where a + stands."""
    try:
        _ours(folder)
        with TemporaryDirectory() as scratch:  # an index and objects of their own: the repository is left as it is
            apart = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_OBJECT_DIRECTORY": scratch}
            _git(folder, "add", "--all", ".", **apart)
            return _git(folder, "write-tree", f"--prefix={_git(folder, 'rev-parse', '--show-prefix')}", **apart)
    except (OSError, subprocess.CalledProcessError):
        return None


def _ours(folder: Path) -> None:
    """Not somebody else's repository around an installation."""
    _git(folder, "ls-files", "--error-unmatch", "__init__.py")


def _git(folder: Path, *arguments: str, **more: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, env={**os.environ, **more}
    )
    return done.stdout.strip()
