"""A model whose weights move along a ranking: forward dampens the next ones, backward restores them."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor, nn

from potion.dampening import factors, joined
from potion.ranking import Ranking, flat_ratios
from potion.types import Importances

__all__ = ["Cursor"]


class Cursor:
    """Owns ``model`` from now on and keeps it dampened at exactly the weights whose ratio is above a threshold.

    A move writes only the weights between the old and the new place in the ranking.
    """

    def __init__(self, model: nn.Module, retain: Importances, forget: Importances, lam: float = 1.0) -> None:
        parameters = dict(model.named_parameters())
        pairs = {name: pair for name, *pair in joined(retain, forget)}
        names = sorted(pairs, key=lambda name: str(_lane_of(parameters[name])))
        self._lanes: list[_Lane] = []
        start = 0
        for _, members in groupby(names, key=lambda name: _lane_of(parameters[name])):
            self._lanes.append(_Lane([parameters[name] for name in members], start, lam))
            start += len(self._lanes[-1].flat)
        ordered = [[_memory_order(each, like=parameters[name]) for each in pairs[name]] for name in names]
        self.ranking = Ranking(flat_ratios([(retained, forgotten) for retained, forgotten in ordered]))
        self._sorted = self.ranking.positions

    def move_to(self, alpha: float) -> int:
        """Dampen the weights with a ratio above ``alpha``, restore all others; returns how many are dampened."""
        count = self.ranking.count_above(alpha)
        if self.ranking.positions is not self._sorted:
            self._sorted = self.ranking.positions
            for lane in self._lanes:
                lane.rank(self.ranking)
        for lane in self._lanes:
            lane.move_to(count)
        return count


class _Lane:
    """The parameters of one device and type as views of one flat tensor, so that a move is one indexed write."""

    def __init__(self, parameters: list[nn.Parameter], start: int, lam: float) -> None:
        sizes = [p.numel() for p in parameters]
        self.flat = torch.empty(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
        self._range, self._lam, self._count = (start, start + len(self.flat)), lam, 0
        self._ranks = self._places = torch.zeros(0, dtype=torch.long)
        self._old = self._new = self.flat[:0]
        for p, piece in zip(parameters, self.flat.split(sizes), strict=True):
            piece.copy_(_memory_order(p.detach(), like=p).flatten())
            p.data = torch.as_strided(piece, p.shape, _dense_strides(p), piece.storage_offset())

    def rank(self, ranking: Ranking) -> None:
        """Take over a ranking that reaches further; equal ratios may have changed places, so start from the beginning."""
        self.move_to(0)
        begin, end = self._range
        mine = (ranking.positions >= begin) & (ranking.positions < end)
        self._ranks = torch.nonzero(mine).flatten()
        self._places = (ranking.positions[mine] - begin).to(self.flat.device)
        beta = factors(ranking.values[mine], self._lam).to(self.flat.device)
        self._old = self.flat[self._places]
        self._new = (self._old.to(beta.dtype) * beta).to(self._old.dtype)

    def move_to(self, count: int) -> None:
        """Dampen those of the lane's weights that are among the first ``count`` of the ranking."""
        target = int(torch.searchsorted(self._ranks, count))
        begin, end = sorted((self._count, target))
        values = self._new if target > self._count else self._old
        self.flat[self._places[begin:end]] = values[begin:end]
        self._count = target


def _lane_of(p: Tensor) -> tuple[torch.device, torch.dtype]:
    return p.device, p.dtype


def _order(p: Tensor) -> list[int]:
    """The dimensions of ``p`` from the outermost to the innermost in memory."""
    strides = p.stride()
    return sorted(range(p.dim()), key=lambda d: -strides[d])


def _memory_order(tensor: Tensor, *, like: Tensor) -> Tensor:
    """``tensor``'s dimensions in the order in which ``like`` lies in memory: channels-last weights stay channels-last."""
    return tensor.permute(_order(like))


def _dense_strides(p: Tensor) -> list[int]:
    """Strides that keep ``p``'s dimensions in their order in memory, without gaps."""
    strides, step = [1] * p.dim(), 1
    for d in reversed(_order(p)):
        strides[d] = step
        step *= p.shape[d]
    return strides
