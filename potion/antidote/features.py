"""What a model sees in samples: the features from which its last linear layer makes the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote.margins import scores_of
from potion.batches import DatasetBatches
from potion.forward import placement

__all__ = ["Spread", "features"]

RIDGE: Final = 0.3
"""So many times their mean is added to all variances: what ordinary samples hardly vary in must not decide alone."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How the features of ordinary samples differ: their ``middle``, the ``axes`` in which they do, and which share of a
    step along each of these does not count.
    """

    middle: Tensor
    axes: Tensor
    narrowed: Tensor

    @classmethod
    def of(cls, ordinary: Tensor) -> Spread:
        """Of ordinary samples (N, F)."""
        middle = ordinary.mean(0)
        _, spread, axes = torch.linalg.svd((ordinary - middle) / len(ordinary) ** 0.5, full_matrices=False)
        variance = spread.square()
        least = (RIDGE * variance.sum() / ordinary.shape[1]).clamp(min=1e-12)
        return cls(middle=middle, axes=axes, narrowed=1 - (least / (variance + least)).sqrt())

    def in_units(self, away: Tensor) -> Tensor:
        """Differences times :math:`(C + r I)^{-1/2}`, up to a factor: what sets ordinary samples apart counts less."""
        return away - (away @ self.axes.T * self.narrowed) @ self.axes


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
