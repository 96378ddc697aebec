"""Put what is behind the differences from the paper into docs/differences.md, from result files.

    python scripts/differences.py [--check]

With --check nothing is written; the exit code says whether the page is up to date.
"""

from __future__ import annotations

import json
from statistics import fmean, median
from typing import Any

from antidote_results import place, records
from between_markers import ROOT, put

from potion.bench.tables import NAMES

LOST = 10.0
"""Points of clean accuracy: a run that loses more counts as lost."""
AGAIN = 0.1
"""By so much must the known poison's accuracy come back in a search to be called up again."""


def searches() -> str:
    lines = [
        "| | seed | runs | healed: mean, median | damage: mean, median | saturated | lost more than 10 points "
        "| known poison came back on the way |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method in ("xlf", "lf", "ssd", "ssd_grid"):
        found = [each for each in records("goel-cifar10", method) if each["known"] > 1]
        for seed in sorted({each["scenario"]["seed"] for each in found}):
            mine = [each for each in found if each["scenario"]["seed"] == seed]
            pairs = [pair(mine, "healed", ".1f"), pair(mine, "damage", "+.1f")]
            counts = (
                [sum(test(each) for each in mine) for test in (saturated, lost, came_back)]
                if mine[0]["trace"]
                else ["-", sum(map(lost, mine)), "-"]
            )
            cells = [NAMES[method], seed, len(mine), *pairs, *counts]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def pair(found: list[dict[str, Any]], score: str, style: str) -> str:
    values = [each[score] for each in found]
    return f"{fmean(values):{style}}, {median(values):{style}}"


def saturated(record: dict[str, Any]) -> bool:
    return bool(record["status"] == "saturated")


def lost(record: dict[str, Any]) -> bool:
    return bool(record["damage"] < -LOST)


def came_back(record: dict[str, Any]) -> bool:
    """Whether more of the known poison obeyed at some step than at one before it."""
    accuracies = [step["known_accuracy"] for step in record["trace"]]
    lowest = [min(accuracies[: place + 1]) for place in range(len(accuracies))]
    return any(now > least + AGAIN for now, least in zip(accuracies, lowest, strict=True))


def one_sample() -> str:
    """XLF from one sample: the run of the main suite, and others of the same victim that came out otherwise."""
    first = {place(each): each for each in records("goel-cifar10", "xlf") if each["known"] == 1}
    others = [each for suite in ("repeated/goel-cifar10", "sensitivity-step") for each in records(suite, "xlf")]
    lines = ["| poisoned | seed | healed, damage | again |", "|---:|---:|---:|---:|"]
    for where, record in sorted(first.items()):
        again = [each for each in others if place(each) == where and each["victim"] == record["victim"]]
        if again:
            told = ", then ".join(f"{each['healed']:.1f}, {each['damage']:+.1f}" for each in again)
            lines.append(f"| {where[1]} | {where[3]} | {record['healed']:.1f}, {record['damage']:+.1f} | {told} |")
    return "\n".join(lines) + "\n"


def draws() -> str:
    rows = json.loads((ROOT / "results/draws/embedded.json").read_text())["rows"]
    counts = sorted({row["known"] for row in rows})
    lines = ["| known | " + " | ".join(map(str, counts)) + " |", "|---|" + "---:|" * len(counts)]
    for method in ("xlf", "lf", "ssd"):
        ratios = [
            max(row["sums"]) / min(row["sums"])
            for known in counts
            for row in rows
            if (row["method"], row["known"]) == (method, known)
        ]
        lines.append(
            f"| {method.upper()} | "
            + " | ".join(f"{ratio:,.2f}" if ratio < 10 else f"{ratio:,.0f}" for ratio in ratios)
            + " |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    put(
        "differences.py",
        {"docs/differences.md": {"searches": searches(), "one sample": one_sample(), "draws": draws()}},
    )
