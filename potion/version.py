"""The version, in the one place it is written."""

from __future__ import annotations

__all__ = ["__version__", "versions"]

__version__ = "0.1.0"


def versions() -> dict[str, dict[str, str]]:
    """What a repair was made with, for its metadata."""
    import torch

    return {"versions": {"potion": __version__, "torch": torch.__version__}}
