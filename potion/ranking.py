"""All weights, ranked once by forget / retain; thresholds and selections are then look-ups."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

__all__ = ["LARGEST_S", "Ranking", "percentile_of"]

LARGEST_S: Final = math.expm1(100) / 100
"""The s at which p reaches 0: there is nothing beyond."""


def percentile_of(s: float) -> float:
    """P = 100 - ln(1 + 100 s), kept in [0, 100]: Eq. (7), FACTS 3."""
    if not s >= 0:
        raise ValueError(f"s must be a number of at least 0, got {s}")
    return max(0.0, 100 - math.log1p(100 * s))


class Ranking:
    """Ratios in falling order, infinite ones first, as far down as anybody has asked.

    A search usually ends among the top few percent, so only these are sorted; the sorted part grows when it has to.
    """

    def __init__(self, ratios: Tensor) -> None:
        self._ratios = torch.where(ratios.isnan(), -1.0, ratios)  # 0/0: below every ratio there is
        self.infinite = int(self._ratios.isposinf().sum())
        self.finite = int((self._ratios >= 0).sum()) - self.infinite
        if self.finite == 0:
            raise ValueError("no weight has a finite importance ratio: the retain importances are 0 everywhere")
        self.values = self._ratios[:0]
        self.positions = torch.zeros(0, dtype=torch.long, device=ratios.device)

    def alpha(self, s: float) -> float:
        """The p-th percentile of the finite ratios, interpolated as numpy does: Eq. (7), FACTS 2 and 3."""
        place = (self.finite - 1) * (percentile_of(s) / 100)
        low = min(math.floor(place), self.finite - 1)
        high = min(low + 1, self.finite - 1)
        self._sort(self.infinite + self.finite - low)
        below, above = (float(self.values[self.infinite + self.finite - 1 - rank]) for rank in (low, high))
        part = place - low
        return below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part)

    def count_above(self, alpha: float) -> int:
        """How many weights have a ratio above ``alpha``; they are the first ones of ``positions``."""
        while self.values.numel() < self.infinite + self.finite and not (
            self.values.numel() and float(self.values[-1]) <= alpha
        ):
            self._sort(4 * max(self.values.numel(), 256))
        return int((self.values > alpha).sum())

    def _sort(self, count: int) -> None:
        if count > self.values.numel():
            count = min(max(count, 4 * self.values.numel()), self.infinite + self.finite)
            self.values, self.positions = torch.topk(self._ratios, count)
