"""What sweeps say about the search: its threshold and its step size, and walking beside bisecting; as Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from potion.bench.plan import plan
from potion.bench.suite import load_suite
from potion.bench.tables import NAMES

__all__ = ["by_threshold", "strategies"]

Record = dict[str, Any]
Place = tuple[bool, str, float]
"""One known sample or more, the method, the step size: a row of the table."""


def by_threshold(suite: str, records: Sequence[Record]) -> list[str]:
    """Healed and damage at every rho: a row for each method and step size; seeds count once in their cell, as everywhere.

    It says how many cells each row is over, and of how many where some are missing.
    """
    cells: dict[tuple[Place, float], dict[tuple[int, int], list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        cell = record["scenario"]["poisoned"], record["known"]
        for point in record.get("points", []):
            place = record["known"] == 1, record["method"], point["step"]
            cells[place, point["rho"]][cell].append(point)
    rhos = sorted({rho for _, rho in cells})
    if len(rhos) < 2:
        return []
    places = sorted({place for place, _ in cells}, key=lambda place: (place[0], [*NAMES].index(place[1]), place[2]))
    planned = {(run.method, run.poisoned, run.known) for run in plan(load_suite(suite))}
    rows = []
    for place in places:
        one, method, step = place
        shown = [_mean(cells[place, rho]) for rho in rhos]
        there = len(cells[place, rhos[0]])
        wanted = sum(each == method and (known == 1) is one for each, _, known in planned)
        count = f"{there} of {wanted}" if there < wanted else f"{there}"
        known = "one" if one else "10 % to 100 %"
        rows.append(f"| {known} | {NAMES[method]} | {step:g} | {count} | {' | '.join(shown)} |")
    title = f"## Where to stop? {load_suite(suite).title}\n"
    head = [
        f"| known | method | step | cells | {' | '.join(f'rho = {rho:g}' for rho in rhos)} |",
        f"|---|---|---:|---:|{'---:|' * len(rhos)}",
    ]
    return [title, "Healed, % / damage, points.\n", "\n".join([*head, *rows]) + "\n"]


def strategies(suite: str, records: Sequence[Record]) -> list[str]:
    """Where bisection ended, and after how many looks, beside the walk of the paper; where a suite compares them."""
    searches: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        searches[record["method"]] += [point for point in record.get("points", []) if "bisect" in point]
    rows = [
        f"| {NAMES[method]} | {len(points)} | {sum(_same_place(point) for point in points)} "
        f"| {fmean(point['steps'] for point in points):.1f} | {fmean(point['bisect']['steps'] for point in points):.1f} |"
        for method, points in searches.items()
        if points
    ]
    if not rows:
        return []
    title = f"## Walking or bisecting? {load_suite(suite).title}\n"
    head = [
        "| method | searches | end at the same place | looks, walking | looks, bisecting |",
        "|---|---:|---:|---:|---:|",
    ]
    return [title, "\n".join([*head, *rows]) + "\n"]


def _mean(cells: dict[tuple[int, int], list[Record]]) -> str:
    healed, damage = (fmean(fmean(p[score] for p in cell) for cell in cells.values()) for score in ("healed", "damage"))
    return f"{healed:.1f} / {damage:+z.1f}"


def _same_place(point: Record) -> bool:
    places = [None if each is None else each["s"] for each in (point["chosen"], point["bisect"]["chosen"])]
    return places[0] == places[1]
