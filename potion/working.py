"""The model to work on: a private copy in the right place, or, where it cannot be copied, the model itself, on loan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from potion.batches import fetch
from potion.distributed import is_sharded, local, refreshed
from potion.forward import logits
from potion.runtime import best_device, copied, forked_rng, lies_channels_last, set_fastest_layout, set_layout
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


def working_copy(model: nn.Module, device: str | torch.device | None, dataset: Dataset[Any]) -> nn.Module:
    """A copy in eval mode on the device asked for; by default where the model is, or a better place than the CPU.

    It is laid out as the device computes fastest, if it then still takes the samples of ``dataset``.
    """
    wanted = None if device is None else known_device(device)
    working = copied(model)
    working.eval()  # by itself: somebody's own may return nothing
    places = {p.device for p in model.parameters()}
    if len(places) > 1:
        return working
    if wanted is None:
        (place,) = places
        wanted = best_device() if place.type == "cpu" else place
    working = working.to(wanted)
    set_fastest_layout(working, wanted)
    if lies_channels_last(working) and not _takes_channels_last(working, dataset):
        set_layout(working, channels_last=False)
    return working


@torch.no_grad()
def _takes_channels_last(model: nn.Module, dataset: Dataset[Any]) -> bool:
    """Whether the model takes a sample in that layout. One that calls ``.view`` after a convolution does not."""
    with forked_rng(0):
        inputs, _ = fetch(dataset, [0])
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        try:
            logits(model, inputs)
        except RuntimeError:  # if it was not the layout, it comes again, where the first batch is looked at
            return False
    return True
