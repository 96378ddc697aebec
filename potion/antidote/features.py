"""What a model sees in samples: the features from which its last linear layer makes the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote.margins import scores_of
from potion.batches import DatasetBatches
from potion.forward import placement

__all__ = ["features"]


@torch.no_grad()
def features(
    model: nn.Module, dataset: Dataset[Any], indices: Sequence[int], batch_size: int, workers: int = 0
) -> tuple[Tensor, Tensor]:
    """What enters the last ``nn.Linear`` that is called with one row a sample, and the scores; (N, F), (N, K), on the CPU.

    A model that has no such layer is seen by its scores alone.
    """
    entered: list[Tensor] = []

    def remember(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        given = [*inputs, *named.values()][0]
        if given.dim() == 2:
            entered[:] = [given]

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(remember, with_kwargs=True) for layer in layers]
    seen, scores = [], []
    try:
        for inputs, _ in DatasetBatches(dataset, indices, batch_size, workers, device=placement(model)[0]):
            entered.clear()
            scores.append(scores_of(model, inputs))
            one_each = bool(entered) and len(entered[0]) == len(inputs)
            seen.append(entered[0].cpu().double() if one_each else scores[-1])
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(seen), torch.cat(scores)
