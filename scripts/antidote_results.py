"""The antidote's result files, and what is said of several of them in a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from between_markers import ROOT

SUITES = {"antidote-cifar10": "pasted after augmentation", "antidote-cifar10-baked": "part of the stored image"}
TRIGGERS = {
    "badnet": "BadNet", "moving": "moving patch", "sine": "sine, 0.025 a pixel", "sine-fast": "sine, 5.6 an image",
    "blend": "blend", "warp": "warp", "posterise": "few shades",
}  # fmt: skip

CARRIERS = "2026-11-16T17:08"
"""Since then they have a say (commit 31114c7)."""
KIN = "2026-11-18T04:45"
"""Since then the second look has its present form (commit 1a9cd7f, which asked for eight others; none had eight or nine)."""
SURE = "2026-11-18T23:06"
"""Since then lessons go on showing what of a label is surely clean."""


def records(suite: str, method: str) -> list[dict[str, Any]]:
    paths = sorted((ROOT / "results" / suite).glob(f"*/{method}-s*.json"))
    return [json.loads(path.read_text()) for path in paths]


def place(record: dict[str, Any]) -> tuple[str, int, int, int]:
    """Attack, poisoned, known, seed."""
    scenario = record["scenario"]
    return scenario["attack"], scenario["poisoned"], record["known"], scenario["seed"]


def cells(found: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, int, int], list[dict[str, Any]]]]:
    """Attack, poisoned and known, each with the runs of all seeds."""
    order = list(TRIGGERS)
    for each in sorted({place(record)[:3] for record in found}, key=lambda each: (order.index(each[0]), *each[1:])):
        yield each, [record for record in found if place(record)[:3] == each]


def mean(rows: list[dict[str, Any]], key: str) -> float:
    return fmean(row[key] for row in rows)


def mean_and_worst(rows: list[dict[str, Any]], key: str, digits: int = 1) -> str:
    """The mean, and the worst in brackets where there are several."""
    worst = f" ({min(row[key] for row in rows):z.{digits}f})" if len(rows) > 1 else ""
    return f"{mean(rows, key):z.{digits}f}{worst}"


def older(found: list[dict[str, Any]]) -> str:
    """How many of the runs were made before carriers had a say, before the surely clean were shown, and of those that found
    nothing, before the second look.
    """
    lost = [each for each in found if each.get("status") == "not_found"]
    text = f"Of {len(found)} runs {_before(found, CARRIERS)} are older than [carriers](antidote.md#carriers), "
    text += f"{_before(found, SURE)} than the [surely clean](antidote.md#surely-clean)."
    if lost:
        text += f" *Not found* are {len(lost)}, of which {_before(lost, KIN)} are older than the "
        text += "[second look](antidote.md#kin)."
    return text


def _before(found: list[dict[str, Any]], time: str) -> int:
    return sum((each.get("provenance") or each["machine"])["time"] < time for each in found)
