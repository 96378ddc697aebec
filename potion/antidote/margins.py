"""By how much samples' own labels win."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import DatasetBatches
from potion.forward import logits, placement

__all__ = ["lead", "margins", "runner_up", "scores_of"]


@torch.no_grad()
def margins(
    model: nn.Module, dataset: Dataset[Any], indices: Sequence[int], batch_size: int, workers: int = 0
) -> tuple[Tensor, Tensor]:
    """The logit of each sample's own label minus the largest other one, and the class that it is given; on the CPU."""
    found, guesses = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.long)]
    for inputs, labels in DatasetBatches(dataset, indices, batch_size, workers, device=placement(model)[0]):
        outputs = scores_of(model, inputs)
        found.append(lead(outputs, labels.cpu()))
        guesses.append(outputs.argmax(1))
    return torch.cat(found), torch.cat(guesses)


def scores_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """The logits of training samples, on the CPU, checked to be numbers."""
    outputs = logits(model, inputs).cpu().double()
    if not outputs.isfinite().all():
        raise ValueError("scores of training samples are NaN or inf: train_set may hold images with NaN or inf")
    return outputs


def lead(outputs: Tensor, labels: Tensor) -> Tensor:
    """The logit of each row's label minus the largest other one."""
    own = labels[:, None]
    return outputs.gather(1, own)[:, 0] - outputs.scatter(1, own, -torch.inf).max(1).values


def runner_up(outputs: Tensor, labels: Tensor) -> Tensor:
    """The best class of each row but its label."""
    return outputs.scatter(1, labels[:, None], -torch.inf).argmax(1)
