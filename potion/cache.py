"""Importances on disk, found again by what they were computed from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from potion.files import replacing
from potion.fingerprint import add_tensor, fingerprint
from potion.types import Batches, Importances

__all__ = ["cached", "content_key"]


def content_key(model: torch.nn.Module, batches: Batches, **settings: Any) -> str:
    """A key of everything importances depend on: the weights, every input and label in order, and the settings.

    The data are read once more for it; they must come out the same each time, as augmented data do under a seed.
    """
    digest = hashlib.sha256(json.dumps([fingerprint(model), torch.__version__, settings], sort_keys=True).encode())
    for inputs, labels in batches:
        for tensor in (inputs, labels):
            add_tensor(digest, tensor)
    return digest.hexdigest()


def cached(
    folder: str | os.PathLike[str], key: str, compute: Callable[[], Importances], device: torch.device
) -> Importances:
    """The importances stored under ``key``; computed and stored where there are none, or only a damaged file."""
    path = Path(folder) / f"importances-{key}.safetensors"
    if path.exists():
        try:
            return load_file(path, device=str(device))
        except SafetensorError:
            path.unlink()
    result = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {name: value.cpu().contiguous() for name, value in result.items()}
    replacing(path, lambda partial: save_file(stored, partial))
    return result
