"""What every point of a search would have cost: any score of the repaired model against s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from potion.cursor import Cursor
from potion.result import HealResult
from potion.runtime import copied

__all__ = ["AnyRepair", "Point", "around", "tradeoff"]

T = TypeVar("T")


class Point(NamedTuple):
    """One place of the curve: ``weights`` were changed by the threshold ``alpha``, which belongs to ``s``."""

    s: float
    alpha: float
    weights: int


class AnyRepair:
    """A copy of a model, repaired to any degree with the importances of a finished heal.

    It writes only the weights between one threshold and the next. A patch would do, too, but takes fingerprints of the whole
    model on the way, which for a small network takes longer than to score it.
    """

    def __init__(self, model: nn.Module, result: HealResult) -> None:
        self._model = copied(model)
        self._cursor = Cursor(self._model, result.retain, result.forget)

    def alpha(self, s: float) -> float:
        """The threshold that belongs to ``s`` (Eq. 7)."""
        return self._cursor.ranking.alpha(s)

    def at(self, alpha: float, score: Callable[[nn.Module], T]) -> tuple[int, T]:
        """How many weights the threshold changes, and the score of the model while they are."""
        weights = self._cursor.move_to(alpha)
        torch.clear_autocast_cache()  # it may hold casts of the old weights
        return weights, score(self._model)


def tradeoff(
    model: nn.Module, result: HealResult, places: Iterable[float], score: Callable[[nn.Module], T]
) -> Iterator[tuple[Point, T]]:
    """The score of ``model`` repaired at each s of ``places``, with the importances of a finished heal."""
    repair = AnyRepair(model, result)
    for s in places:
        alpha = repair.alpha(s)
        weights, found = repair.at(alpha, score)
        yield Point(s, alpha, weights), found


def around(result: HealResult, points: int, beyond: float = 100.0) -> list[float]:
    """Values of s to look at, evenly spaced on a logarithmic scale: from the search's first one to well beyond its last."""
    first, last = result.trace[0].s, beyond * result.trace[-1].s
    return [first * (last / first) ** (k / (points - 1)) for k in range(points)]
