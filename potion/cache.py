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
from potion.fingerprint import add_tensor, digest_of, fingerprint
from potion.types import Batches, Importances
from potion.version import __version__

__all__ = ["cached", "content_key"]


def content_key(model: torch.nn.Module, batches: Batches, **settings: Any) -> str:
    """A key of what importances depend on: weights, buffers, what is frozen, the model's printed structure, every input
    and label in order, the settings, and the versions of torch and potion. Code that a print of the model does not show
    cannot be seen: empty the folder when the model's ``forward`` changes.

    The data are read once more for it; they must come out the same each time, as augmented data do under a seed.
    """
    about = {
        "weights": fingerprint(model),
        "buffers": digest_of(model.named_buffers()),
        "frozen": [name for name, p in model.named_parameters() if not p.requires_grad],
        "structure": [repr(model), [f"{type(m).__module__}.{type(m).__qualname__}" for m in model.modules()]],
        "versions": [torch.__version__, __version__],
        "settings": settings,
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for inputs, labels in batches:
        for tensor in (inputs, labels):
            add_tensor(digest, tensor)
    return digest.hexdigest()


def cached(
    folder: str | os.PathLike[str], key: str, compute: Callable[[], Importances], model: torch.nn.Module
) -> Importances:
    """The importances stored under ``key``; computed and stored where there are none, or only a damaged file."""
    path = Path(folder) / f"importances-{key}.safetensors"
    if path.exists():
        try:
            found = load_file(path)
            return {name: found[name].to(p.device) for name, p in model.named_parameters()}
        except (SafetensorError, KeyError):
            path.unlink()
    result = compute()
    stored = {name: value.cpu().contiguous() for name, value in result.items()}
    replacing(path, lambda partial: save_file(stored, partial))
    return result
