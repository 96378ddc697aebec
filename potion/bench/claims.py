"""The paper's claims, one by one, held against result files: what was measured here, and whether it holds.

What the paper claims for a suite is read from its own table (``published.toml``), not from its abstract: on some data
another method comes first there, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Final

from potion.bench.tables import NAMES, Spec

__all__ = ["Claim", "claims"]

Cell = tuple[int, int]
SEARCHED: Final = ("xlf", "lf", "ssd")
NOTHING: Final = 1.0
"""Healing of so many points more than the poisoned model has is none."""


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
        return f"{fmean(self.healed):.1f} % at {fmean(self.damage):+z.1f}"

    def spread(self) -> float:
        return stdev(self.healed) if len(self.healed) > 1 else 0.0


@dataclass(frozen=True)
class _Published:
    """The paper's table of a suite: for each method healed, its standard deviation, damage, its standard deviation."""

    rows: dict[str, tuple[float, ...]]
    groups: tuple[str, ...]

    def of(self, group: str, methods: Sequence[str]) -> list[tuple[float, ...]] | None:
        """The values of some methods in a group of columns; nothing where the table does not have them all."""
        if group not in self.groups or not set(methods) <= set(self.rows):
            return None
        first = 4 * self.groups.index(group)
        return [self.rows[method][first : first + 4] for method in methods]


def claims(records: Sequence[dict[str, Any]], paper: Spec) -> list[Claim]:
    """The claims that the results of one suite say something about; ``paper`` is the table it is held against."""
    published = _Published(dict(paper.rows), paper.groups)
    found = [make(_Cells(records), published) for make in CLAIMS]
    return [claim for claim in found if claim is not None]


class _Cells:
    """Results by method, cell and seed; comparisons are over what all the methods compared have."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self._found: dict[str, dict[Cell, dict[int, dict[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
        for record in records:
            where = record["scenario"]
            self._found[record["method"]][where["poisoned"], record["known"]][where["seed"]] = record

    def compared(self, methods: Sequence[str], wanted: Callable[[int, int], bool]) -> tuple[list[_Scores], str] | None:
        """The scores of the methods over their common cells and seeds, and which these are; nothing where there are none."""
        common = {
            cell: set.intersection(*(set(self._found[method][cell]) for method in methods))
            for cell in sorted(self._found[methods[0]])
            if wanted(*cell)
        }
        cells = {cell: seeds for cell, seeds in common.items() if seeds}
        if not cells:
            return None
        scores = [
            _Scores(*(self._means(method, cells, measure) for measure in ("healed", "damage"))) for method in methods
        ]
        fewest, most = (pick(len(seeds) for seeds in cells.values()) for pick in (min, max))
        seeds = f"{fewest} to {most} seeds" if fewest != most else f"{most} seed{'s' * (most > 1)}"
        return scores, f"{len(cells)} cell{'s' * (len(cells) > 1)}, {seeds}"

    def poisoned(self) -> float | None:
        """What the poisoned models are healed to as they are."""
        runs = [run for seeds in self._found["none"].values() for run in seeds.values()]
        return fmean(run["healed"] for run in runs) if runs else None

    def _means(self, method: str, cells: dict[Cell, set[int]], measure: str) -> list[float]:
        return [fmean(self._found[method][cell][seed][measure] for seed in seeds) for cell, seeds in cells.items()]


def _shares(poisoned: int, known: int) -> bool:
    return known > 1 and 10 * known >= poisoned


def _named(methods: Sequence[str], scores: Sequence[_Scores]) -> str:
    return ", ".join(f"{NAMES[method]} {each.told()}" for method, each in zip(methods, scores, strict=True))


def _first(values: Iterable[float]) -> str:
    """The name of the method with the largest of the values for the three that search."""
    return max(zip(values, SEARCHED, strict=True))[1]


def _best(cells: _Cells, paper: _Published) -> Claim | None:
    theirs = paper.of("shares", SEARCHED)
    if theirs is None or (found := cells.compared(SEARCHED, _shares)) is None:
        return None
    expected = _first(each[0] for each in theirs), _first(each[2] for each in theirs)
    held = expected == (
        _first(fmean(each.healed) for each in found[0]),
        _first(fmean(each.damage) for each in found[0]),
    )
    healer, saver = (NAMES[method] for method in expected)
    text = f"{healer} heals most and costs least." if healer == saver else f"{healer} heals most, {saver} costs least."
    return Claim(text, f"{_named(SEARCHED, found[0])} ({found[1]}).", held)


def _grid(cells: _Cells, paper: _Published) -> Claim | None:
    methods = "ssd", "ssd_grid"
    if paper.of("shares", methods) is None or (found := cells.compared(methods, _shares)) is None:
        return None
    ptn, grid = found[0]
    held = fmean(ptn.healed) > fmean(grid.healed) and fmean(ptn.damage) > fmean(grid.damage)
    return Claim("PTN search does better than a grid search.", f"{_named(methods, found[0])} ({found[1]}).", held)


def _retrained(cells: _Cells, paper: _Published) -> Claim | None:
    methods = "retrain", "xlf"
    found = cells.compared(methods, lambda poisoned, known: _shares(poisoned, known) and known < poisoned)
    if paper.of("shares", methods) is None or found is None:
        return None
    retrain, xlf = found[0]
    held = fmean(retrain.healed) < fmean(xlf.healed)
    text = f"{_named(methods, found[0])} ({found[1]}, 10 % to 90 % known)."
    return Claim("Retraining without the known part stays poisoned, far below XLF.", text, held)


def _one(cells: _Cells, paper: _Published) -> Claim | None:
    theirs, untreated = paper.of("one", (*SEARCHED, "none")), cells.poisoned()
    if theirs is None or untreated is None or (found := cells.compared(SEARCHED, lambda _, known: known == 1)) is None:
        return None
    expected, idle = _first(each[0] for each in theirs[:3]), theirs[2][0] <= theirs[3][0] + NOTHING
    ours = [fmean(each.healed) for each in found[0]]
    held = _first(ours) == expected and (not idle or ours[2] <= untreated + NOTHING)
    text = f"From one sample {NAMES[expected]} heals most{'; SSD does nothing' * idle}."
    return Claim(text, f"{_named(SEARCHED, found[0])} ({found[1]}); the poisoned model {untreated:.1f} %.", held)


def _stable(cells: _Cells, paper: _Published) -> Claim | None:
    theirs = paper.of("shares", SEARCHED)
    if theirs is None or (found := cells.compared(SEARCHED, _shares)) is None or len(found[0][0].healed) < 2:
        return None
    spreads = [each.spread() for each in found[0]]
    told = ", ".join(f"{NAMES[method]} {spread:.1f}" for method, spread in zip(SEARCHED, spreads, strict=True))
    expected = _first(-each[1] for each in theirs)
    text = f"Standard deviation of healed over cells: {told} ({found[1]})."
    return Claim(f"{NAMES[expected]} is the most stable.", text, _first(-spread for spread in spreads) == expected)


CLAIMS: Final = (_best, _grid, _retrained, _one, _stable)
