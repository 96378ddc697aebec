"""All weights, ranked once by forget / retain; thresholds and selections are then look-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from potion.distributed import summed, summed_number

__all__ = ["LARGEST_S", "Ranking", "SharedRanking", "flat_ratios", "percentile_of"]

LARGEST_S: Final = math.expm1(100) / 100
"""The s at which p reaches 0: there is nothing beyond."""

PIECE: Final = 2**30
"""So many ratios are looked through at a time."""

SAMPLE: Final = 2**17
"""So many ratios tell where the top few percent begin."""


def percentile_of(s: float) -> float:
    """P = 100 - ln(1 + 100 s), kept in [0, 100]: Eq. (7), FACTS 3."""
    if not s >= 0:
        raise ValueError(f"s must be a number of at least 0, got {s}")
    return max(0.0, 100 - math.log1p(100 * s))


def flat_ratios(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Forget / retain of all (retain, forget) pairs in one tensor: NaN where neither uses a weight, inf where only the
    poison does.
    """
    first = pairs[0][0]
    sizes = [retained.numel() for retained, _ in pairs]
    dtype = torch.float64 if any(retained.dtype == torch.float64 for retained, _ in pairs) else torch.float32
    flat = torch.empty(sum(sizes), dtype=dtype, device=first.device)
    for piece, (retained, forgotten) in zip(flat.split(sizes), pairs, strict=True):
        torch.div(forgotten.flatten().to(flat.device), retained.flatten().to(flat.device), out=piece)
    return flat


class Ranking:
    """Ratios in falling order, infinite ones first, as far down as anybody has asked.

    A search usually ends among the top few percent. Only these are sorted, after a look at every n-th ratio has told
    where they begin; that takes one pass and little memory, and the sorted part grows when it has to.
    """

    def __init__(self, ratios: Tensor) -> None:
        """Takes ``ratios`` over: the tensor is changed."""
        self._ratios = ratios.masked_fill_(ratios.isnan(), -1.0)  # 0/0: below every ratio there is
        self.infinite = int(torch.count_nonzero(self._ratios == math.inf))
        self.total = int(torch.count_nonzero(self._ratios >= 0))
        self.finite = self._counted(self.total - self.infinite)
        if self.finite == 0:
            raise ValueError("no weight has a finite importance ratio: the retain importances are 0 everywhere")
        self._sample = self._ratios[:: max(1, math.ceil(len(ratios) / SAMPLE))].sort(descending=True).values
        self.values = self._ratios[:0]
        self._host = self._falling = self._ratios[
            :0
        ].cpu()  # what a search looks up at each step, where looking costs nothing
        self.positions = torch.zeros(0, dtype=torch.long, device=ratios.device)

    def alpha(self, s: float) -> float:
        """The p-th percentile of the finite ratios, interpolated as numpy does: Eq. (7), FACTS 2 and 3."""
        place = (self.finite - 1) * (percentile_of(s) / 100)
        low = min(math.floor(place), self.finite - 1)
        high = min(low + 1, self.finite - 1)
        below, above = self._at(low, high)
        part = place - low
        return below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part)

    def _counted(self, number: int) -> int:
        """How many there are in all."""
        return number

    def _at(self, low: int, high: int) -> tuple[float, float]:
        """The finite ratios at two places, counted from the smallest."""
        self._sort(self.total - low)
        return float(self._host[self.total - 1 - low]), float(self._host[self.total - 1 - high])

    def count_above(self, alpha: float) -> int:
        """How many weights have a ratio above ``alpha``; they are the first ones of ``positions``."""
        while len(self._host) < self.total and not (len(self._host) and float(self._host[-1]) <= alpha):
            self._sort(len(self._host) + 1)
        return int(torch.searchsorted(self._falling, torch.tensor(-alpha, dtype=torch.float64)))

    def _sort(self, count: int) -> None:
        """Have at least the first ``count`` in order, and four times what there was."""
        if count <= len(self.values):
            return
        wanted = min(max(count, 4 * len(self.values)), self.total)
        place = math.ceil(1.2 * wanted / len(self._ratios) * len(self._sample)) + 16
        while True:
            everything = place >= len(self._sample)
            least = 0.0 if everything else max(float(self._sample[place]), 0.0)
            positions = _where(self._ratios, least)
            if len(positions) >= wanted:
                break
            place *= 2
        self.values, order = self._ratios[positions].sort(descending=True)
        self.positions = positions[order]
        self._host = self.values.cpu()
        self._falling = -self._host.double()  # in float64: an interpolated alpha may lie between two float32 ratios


def _where(ratios: Tensor, least: float) -> Tensor:
    """The positions of the ratios of at least ``least``, in pieces, for devices that count only to 2^31."""
    pieces = ratios.split(PIECE)
    return torch.cat([torch.nonzero(piece >= least).flatten() + k * PIECE for k, piece in enumerate(pieces)])


class SharedRanking(Ranking):
    """The ranking of weights that are spread over processes: each has its own in order, thresholds are those of all.

    The exact ratio at a place in the order of all is found by bisection over the floats themselves, of which there are so
    few that 32 (64) rounds of counting do: nobody ever sees another's ratios.
    """

    def _counted(self, number: int) -> int:
        return summed_number(number, self._ratios.device)

    def _at(self, low: int, high: int) -> tuple[float, float]:
        dtype, device = self._ratios.dtype, self._ratios.device
        bits = torch.int64 if dtype == torch.float64 else torch.int32
        ranks = torch.tensor([low, high])
        lower = torch.zeros(2, dtype=bits)
        upper = torch.full((2,), torch.finfo(dtype).max, dtype=dtype).view(bits)
        while bool((lower < upper).any()):  # floats of one sign are ordered as their bits are
            middle = lower + (upper - lower) // 2
            counts = torch.stack([self._up_to(bound) for bound in middle.view(dtype).to(device)])
            summed([counts])
            enough = counts.cpu() > ranks
            lower, upper = torch.where(enough, lower, middle + 1), torch.where(enough, middle, upper)
        below, above = lower.view(dtype).tolist()
        return below, above

    def _up_to(self, bound: Tensor) -> Tensor:
        """How many ratios here are at most ``bound``; 0/0 is marked by a negative number and does not count."""
        pieces = self._ratios.split(PIECE)
        return torch.stack([torch.count_nonzero((piece >= 0) & (piece <= bound)) for piece in pieces]).sum()
