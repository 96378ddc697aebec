"""What every point of a search would have cost: any score of the repaired model against s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from torch import nn

from potion.dampening import dampen, joined
from potion.ranking import Ranking, flat_ratios
from potion.result import HealResult

__all__ = ["Point", "around", "repaired", "tradeoff"]

T = TypeVar("T")


class Point(NamedTuple):
    """One place of the curve: ``weights`` were changed by the threshold ``alpha``, which belongs to ``s``."""

    s: float
    alpha: float
    weights: int


def repaired(model: nn.Module, result: HealResult, alpha: float, score: Callable[[nn.Module], T]) -> tuple[int, T]:
    """How many weights the threshold changes, and the score of the model while they are; the model comes back as it was."""
    patch = dampen(model, result.retain, result.forget, alpha)
    patch.apply(model)
    try:
        return patch.count, score(model)
    finally:
        patch.revert(model)


def tradeoff(
    model: nn.Module, result: HealResult, places: Iterable[float], score: Callable[[nn.Module], T]
) -> Iterator[tuple[Point, T]]:
    """The score of ``model`` repaired at each s of ``places``, with the importances of a finished heal."""
    pairs = [(retained, forgotten) for _, retained, forgotten in joined(result.retain, result.forget)]
    ranking = Ranking(flat_ratios(pairs))
    for s in places:
        alpha = ranking.alpha(s)
        weights, found = repaired(model, result, alpha, score)
        yield Point(s, alpha, weights), found


def around(result: HealResult, points: int, beyond: float = 100.0) -> list[float]:
    """Values of s to look at, evenly spaced on a logarithmic scale: from the search's first one to well beyond its last."""
    first, last = result.trace[0].s, beyond * result.trace[-1].s
    return [first * (last / first) ** (k / (points - 1)) for k in range(points)]
