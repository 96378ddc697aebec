"""The paper's claims, one by one, held against result files: what was measured here, and whether it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Final

from potion.bench.tables import NAMES

__all__ = ["Claim", "claims"]

Cell = tuple[int, int]


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was found here, and whether that agrees."""

    paper: str
    found: str
    held: bool


@dataclass(frozen=True)
class _Scores:
    """Healed and damage of a method over cells, each the mean of its seeds."""

    healed: list[float]
    damage: list[float]

    def told(self) -> str:
        return f"{fmean(self.healed):.1f} % at {fmean(self.damage):+.1f}"

    def spread(self) -> float:
        return stdev(self.healed) if len(self.healed) > 1 else 0.0


def claims(records: Sequence[dict[str, Any]]) -> list[Claim]:
    """The claims that the results of one suite say something about."""
    found = [make(_Cells(records)) for make in CLAIMS]
    return [claim for claim in found if claim is not None]


class _Cells:
    """Results by method and cell; comparisons are over the cells that all the methods compared have."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self._found: dict[str, dict[Cell, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for record in records:
            if record["known"]:
                self._found[record["method"]][record["scenario"]["poisoned"], record["known"]].append(record)

    def compared(self, methods: Sequence[str], wanted: Callable[[int, int], bool]) -> tuple[list[_Scores], str] | None:
        """The scores of the methods over their common cells, and which these are; nothing where there are none."""
        common = set.intersection(*(set(self._found[method]) for method in methods))
        cells = sorted(cell for cell in common if wanted(*cell))
        if not cells:
            return None
        scores = [
            _Scores(*(self._means(method, cells, measure) for measure in ("healed", "damage"))) for method in methods
        ]
        return scores, f"{len(cells)} cell{'s' * (len(cells) > 1)}"

    def _means(self, method: str, cells: Iterable[Cell], measure: str) -> list[float]:
        return [fmean(run[measure] for run in self._found[method][cell]) for cell in cells]


def _shares(poisoned: int, known: int) -> bool:
    return known > 1 and 10 * known >= poisoned


def _named(methods: Sequence[str], scores: Sequence[_Scores]) -> str:
    return ", ".join(f"{NAMES[method]} {each.told()}" for method, each in zip(methods, scores, strict=True))


def _best(cells: _Cells) -> Claim | None:
    methods = "xlf", "lf", "ssd"
    if (found := cells.compared(methods, _shares)) is None:
        return None
    xlf, *others = found[0]
    means = [(fmean(each.healed), fmean(each.damage)) for each in others]
    held = all(fmean(xlf.healed) > healed and fmean(xlf.damage) > damage for healed, damage in means)
    return Claim("XLF heals more than LF and SSD, and costs less.", f"{_named(methods, found[0])} ({found[1]}).", held)


def _grid(cells: _Cells) -> Claim | None:
    methods = "ssd", "ssd_grid"
    if (found := cells.compared(methods, _shares)) is None:
        return None
    ptn, grid = found[0]
    held = fmean(ptn.healed) > fmean(grid.healed) and fmean(ptn.damage) > fmean(grid.damage)
    return Claim("PTN search does better than a grid search.", f"{_named(methods, found[0])} ({found[1]}).", held)


def _retrained(cells: _Cells) -> Claim | None:
    methods = "retrain", "xlf"
    found = cells.compared(methods, lambda poisoned, known: _shares(poisoned, known) and known < poisoned)
    if found is None:
        return None
    retrain, xlf = found[0]
    held = fmean(retrain.healed) < fmean(xlf.healed)
    text = f"{_named(methods, found[0])} ({found[1]}, 10 % to 90 % known)."
    return Claim("Retraining without the known part stays poisoned, far below XLF.", text, held)


def _one(cells: _Cells) -> Claim | None:
    methods = "xlf", "lf", "ssd"
    if (found := cells.compared(methods, lambda _, known: known == 1)) is None:
        return None
    healed = [fmean(each.healed) for each in found[0]]
    text = f"{_named(methods, found[0])} ({found[1]})."
    return Claim(
        "From one sample XLF heals most, then LF; SSD does nothing.", text, healed == sorted(healed, reverse=True)
    )


def _stable(cells: _Cells) -> Claim | None:
    methods = "xlf", "lf", "ssd"
    if (found := cells.compared(methods, _shares)) is None or len(found[0][0].healed) < 2:
        return None
    spreads = [each.spread() for each in found[0]]
    told = ", ".join(f"{NAMES[method]} {spread:.1f}" for method, spread in zip(methods, spreads, strict=True))
    text = f"Standard deviation of healed over cells: {told} ({found[1]})."
    return Claim("XLF is the most stable.", text, spreads[0] == min(spreads))


CLAIMS: Final = (_best, _grid, _retrained, _one, _stable)
