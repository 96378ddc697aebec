"""Where a figure comes from: time, versions, commit, device."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potion.version import __version__

__all__ = ["machine"]


def machine(device: torch.device) -> dict[str, Any]:
    """Time, versions, commit and device; no host names, no paths."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "potion": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "commit": _commit(),
        "device": _device_name(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
    }


def _device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()})"


@cache
def _commit() -> str | None:
    """The commit that this code is from, with a + where it was changed since; none outside a checkout."""
    here = Path(__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", __file__)  # not somebody else's repository around an installation
        commit = _git(here, "rev-parse", "HEAD")
        return commit + ("+" if _git(here, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
