"""Runs that were made a second time: how much of a result is chance, with the same victim, known poison and settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from potion.bench.plan import Run
from potion.bench.results import Results
from potion.bench.tables import NAMES

__all__ = ["FOLDER", "repeats"]

FOLDER: Final = "repeated"
"""Where second results lie, below the folder of the first; never averaged into anything."""

MEASURES: Final = {"healed": ".1f", "damage": "+.1f"}

Pair = tuple[dict[str, Any], dict[str, Any]]


def repeats(title: str, runs: Sequence[Run], folder: Path) -> list[str]:
    """A section that puts second results beside the first; nothing where there are none."""
    first, second = Results.of(folder, runs).records, Results.of(folder / FOLDER, runs).records
    pairs: dict[tuple[str, bool], list[Pair]] = defaultdict(list)
    for path in sorted(first.keys() & second.keys()):
        record = first[path]
        pairs[record["method"], record["known"] == 1].append((record, second[path]))
    if not pairs:
        return []
    everything = [pair for some in pairs.values() for pair in some]
    same = sum(one["victim"] == two["victim"] for one, two in everything)
    lines = [
        f"## The same runs twice: {title}",
        "",
        f"`results/{FOLDER}` has a second result of {len(everything)} runs; {same} of their victims have the very same "
        f"scores. `results/{FOLDER}/README.md` says what changed in between. The tables count the first results only.",
        "",
        f"| method | known | runs {''.join(f'| {what}, first | again | apart, mean (most) ' for what in MEASURES)}|",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {NAMES[method]} | {'one' if one else '10 % to 100 %'} | {len(some)} "
        f"| {' | '.join(_compared(some, measure, style) for measure, style in MEASURES.items())} |"
        for (method, one), some in sorted(pairs.items())
    ]
    return ["\n".join(lines) + "\n"]


def _compared(pairs: Sequence[Pair], measure: str, style: str) -> str:
    first, again = ([pair[k][measure] for pair in pairs] for k in (0, 1))
    apart = [abs(two - one) for one, two in zip(first, again, strict=True)]
    return f"{fmean(first):{style}} | {fmean(again):{style}} | {fmean(apart):.1f} ({max(apart):.1f})"
