"""The model to work on: a private copy in the right place, or, where it cannot be copied, the model itself, on loan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from potion.distributed import is_sharded, local, refreshed
from potion.runtime import best_device, copied, set_fastest_layout
from potion.validation import known_device

__all__ = ["lent", "working_copy"]


@contextmanager
def lent(model: nn.Module) -> Iterator[nn.Module]:
    """A model that cannot be copied, to be worked on itself: its pieces and modes come back as they were."""
    if not is_sharded(model):
        yield model
        return
    modes = [(module, module.training) for module in model.modules()]
    pieces = {name: local(p).clone() for name, p in model.named_parameters()}
    try:
        yield model.eval()
    finally:
        for module, mode in modes:
            module.training = mode
        refreshed(model)
        for name, p in model.named_parameters():
            local(p).copy_(pieces[name])
        refreshed(model)


def working_copy(model: nn.Module, device: str | torch.device | None) -> nn.Module:
    """A copy in eval mode on the device asked for; by default where the model is, or a better place than the CPU."""
    wanted = None if device is None else known_device(device)
    working = copied(model).eval()
    places = {p.device for p in model.parameters()}
    if len(places) > 1:
        return working
    if wanted is None:
        (place,) = places
        wanted = best_device() if place.type == "cpu" else place
    working = working.to(wanted)
    set_fastest_layout(working, wanted)
    return working
