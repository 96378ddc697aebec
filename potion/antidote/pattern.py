"""What poison adds to images on average: the whole of a trigger that is the same in every image, however faint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote.trigger import Trigger, extremes
from potion.batches import DatasetBatches, fetch
from potion.forward import logits, placement

__all__ = ["pattern"]

FEW: Final = 32
"""Of fewer samples the average shows the samples, not what they have in common."""
SEEN: Final = 256
"""So many poisoned images tell how bright and how dark images can be."""
WORKS: Final = 0.1
"""A pattern that makes fewer of the images obey is not used."""


@torch.no_grad()
def pattern(
    model: nn.Module,
    dataset: Dataset[Any],
    poison: Mapping[int, int],
    target: int,
    trusted: Sequence[int],
    labels: Tensor,
    images: Tensor,
    *,
    batch_size: int,
    workers: int = 0,
) -> Trigger | None:
    r"""The mean of poisoned images less the mean of trusted ones of the same classes, where that makes the model obey.

    .. math:: \delta = \frac1{|S|} \sum_{x \in S} x - \sum_c \frac{|S_c|}{|S|} \bar x_c

    ``poison`` are samples S with the classes they belong to, ``labels`` those of the whole dataset; whether it works is
    seen on ``images``. What the samples show averages out, and what has been added to all of them stays.
    """
    if len(poison) < FEW:
        return None
    classes = torch.tensor(list(poison.values()))
    others = labels[list(trusted)]
    wanted = torch.bincount(classes, minlength=int(labels.max()) + 1).double()
    there = torch.bincount(others, minlength=len(wanted))
    weights = (wanted / there.clamp(min=1))[others]
    if not weights.sum():
        return None
    added = _mean(model, dataset, list(poison), torch.ones(len(poison)), batch_size, workers)
    added -= _mean(model, dataset, trusted, weights, batch_size, workers)
    found = Trigger(
        domain="sums",
        mask=torch.ones(added.shape[-2:], dtype=torch.bool, device=added.device),
        source=added,
        target=target,
        success=0.0,
        control=_obeying(model, images, target, batch_size),
        limits=extremes(images, fetch(dataset, list(poison)[:SEEN])[0]),
    )
    found = found.with_success(_obeying(model, found.onto(images), target, batch_size))
    return found if found.gain >= WORKS else None


def _mean(
    model: nn.Module, dataset: Dataset[Any], indices: Sequence[int], weights: Tensor, batch_size: int, workers: int
) -> Tensor:
    """The weighted mean of images, in one pass; in float32, whatever they are, for faint patterns."""
    shares = (weights / weights.sum()).float().split(batch_size)
    batches = DatasetBatches(dataset, list(indices), batch_size, workers, device=placement(model)[0])
    parts = [
        torch.einsum("n,nchw->chw", some.to(inputs.device), inputs.float())
        for (inputs, _), some in zip(batches, shares, strict=True)
    ]
    return torch.stack(parts).sum(0)


def _obeying(model: nn.Module, images: Tensor, target: int, batch_size: int) -> float:
    hits = [(logits(model, some).argmax(1) == target).float() for some in images.split(batch_size)]
    return float(torch.cat(hits).mean())
