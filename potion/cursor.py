"""A model whose weights move along a ranking: forward dampens the next ones, backward restores them."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor, nn

from potion.dampening import factors, joined
from potion.distributed import is_sharded, local, refreshed, summed_number
from potion.ranking import Ranking, SharedRanking, flat_ratios
from potion.types import Importances

__all__ = ["Cursor"]


class Cursor:
    """Owns ``model`` from now on and keeps it dampened at exactly the weights whose ratio is above a threshold.

    A move writes only the weights between the old and the new place in the ranking.
    """

    def __init__(self, model: nn.Module, retain: Importances, forget: Importances, lam: float = 1.0) -> None:
        self._model, self._sharded = model, is_sharded(model)
        parameters = dict(model.named_parameters())
        pairs = {name: pair for name, *pair in joined(retain, forget)}
        names = sorted(pairs, key=lambda name: str(_lane_of(parameters[name])))
        self._lanes: list[_Lane] = []
        start = 0
        for _, members in groupby(names, key=lambda name: name if self._sharded else _lane_of(parameters[name])):
            mine = [parameters[name] for name in members]
            flat = local(mine[0]).view(-1) if self._sharded else _one_tensor(mine)
            self._lanes.append(_Lane(flat, start, lam))
            start += len(flat)
        ordered = [[_memory_order(each, like=local(parameters[name])) for each in pairs[name]] for name in names]
        ratios = flat_ratios([(retained, forgotten) for retained, forgotten in ordered])
        self.ranking = SharedRanking(ratios) if self._sharded else Ranking(ratios)
        self._sorted = self.ranking.positions[:0]

    def move_to(self, alpha: float) -> int:
        """Dampen the weights with a ratio above ``alpha``, restore all others; returns how many are dampened."""
        count = self.ranking.count_above(alpha)
        if self.ranking.positions is not self._sorted:
            self._sorted = self.ranking.positions
            for lane in self._lanes:
                lane.rank(self.ranking)
        for lane in self._lanes:
            lane.move_to(count)
        if not self._sharded:
            return count
        refreshed(self._model)
        return summed_number(count, self.ranking.values.device)


class _Lane:
    """Weights in one flat tensor, whose first one has the number ``start`` among all: a move is one indexed write."""

    def __init__(self, flat: Tensor, start: int, lam: float) -> None:
        self.flat = flat
        self._range, self._lam, self._count = (start, start + len(flat)), lam, 0
        self._ranks = self._places = torch.zeros(0, dtype=torch.long)
        self._old = self._new = flat[:0]

    def rank(self, ranking: Ranking) -> None:
        """Take over a ranking that reaches further; equal ratios may have changed places, so start from the beginning."""
        self.move_to(0)
        begin, end = self._range
        mine = (ranking.positions >= begin) & (ranking.positions < end)
        self._ranks = torch.nonzero(mine).flatten().cpu()  # looked up at each step
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


def _one_tensor(parameters: list[nn.Parameter]) -> Tensor:
    """The parameters of one device and type, made views of one flat tensor."""
    sizes = [p.numel() for p in parameters]
    flat = torch.empty(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
    for p, piece in zip(parameters, flat.split(sizes), strict=True):
        piece.copy_(_memory_order(p.detach(), like=p).flatten())
        p.data = torch.as_strided(piece, p.shape, _dense_strides(p), piece.storage_offset())
    return flat


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
