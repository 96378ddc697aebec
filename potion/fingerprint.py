"""Telling models and data apart by their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from potion.distributed import refreshed, whole

__all__ = ["add_tensor", "digest_of", "fingerprint", "stored_tensors"]


class Hash(Protocol):
    """What :mod:`hashlib` returns."""

    def update(self, data: bytes | memoryview, /) -> None: ...


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over all that a checkpoint of the model holds: names, types, shapes, bytes. The device does not matter."""
    return digest_of(stored_tensors(model).items())


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, tied ones once, sorted by name."""
    refreshed(model)
    stored = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in stored}
    every = dict(model.named_parameters()) | buffers
    return {name: every[name].detach() for name in sorted(every)}


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 of named tensors, one after the other."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name}:".encode())
        add_tensor(digest, tensor)
    return digest.hexdigest()


def add_tensor(digest: Hash, tensor: Tensor) -> None:
    """Feed a tensor's type, shape and values, in logical order, to a hash."""
    digest.update(f"{tensor.dtype}:{tuple(tensor.shape)};".encode())
    digest.update(whole(tensor).contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
