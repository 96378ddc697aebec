"""The antidote's result files, and what is said of several of them in a table.

    python scripts/antidote_results.py SUITE [SUITE ...]     # names the files that are of an earlier form of the method

so that ``rm $(python scripts/antidote_results.py vit-imagenette-badnet)`` and ``potion bench run`` make them anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from between_markers import ROOT

from potion.antidote.likeness import ENOUGH
from potion.antidote.trigger import STRONG

SUITES = {"antidote-cifar10": "pasted after augmentation", "antidote-cifar10-baked": "part of the stored image"}
TRIGGERS = {
    "badnet": "BadNet", "moving": "moving patch", "sine": "sine, 0.025 a pixel", "sine-fast": "sine, 5.6 an image",
    "blend": "blend", "warp": "warp", "posterise": "few shades",
}  # fmt: skip

FORMS = {
    1: ("2026-11-15T00:00", "localise, quarantine, immunise; the rules of evidence settled on 16 November"),
    2: ("2026-11-16T17:08", "[carriers](antidote.md#carriers), by their first limit"),
    3: ("2026-11-18T04:45", "the [second look](antidote.md#kin), where nothing else convinces"),
    4: (
        "2026-11-18T07:18",
        "half as many steps of search; masks cut anew next to clean samples; the second limit for carriers; wider patches "
        "(in this order, in the course of one day)",
    ),
    5: ("2026-11-18T22:43", "lessons go on showing what is [surely clean](antidote.md#surely-clean)"),
    6: (
        "2026-11-19T22:00",
        f"where {ENOUGH} or more of a label are known, only what is [like them](antidote.md#like-the-known) may be poison; "
        "with fewer it is form 5",
    ),
    7: (
        "2026-11-19T23:45",
        "where a second look turns others, but to few classes, kin that [show different ones](antidote.md#kin) are told "
        "about; what was found before it finds as form 6 does",
    ),
    8: (
        "2026-11-20T01:12",
        "a mask that is no clear trigger is not taught about where its label has a clear one; where all are clear, or none, "
        "it is form 7",
    ),
}
"""Since when the method has which form, and what was new."""
BEGUN = {"24859581b6cebe38e4fe564539ea30ebcc0ec1f6": 6, "07bdf0c16538864dadbecad82b3361999419d9dd": 7}
"""Commits some of whose runs ended when there was a newer form already."""


def form(record: dict[str, Any]) -> int:
    """The form of the method that a result file is of."""
    made = record.get("provenance") or record["machine"]
    return BEGUN.get(made["commit"]) or max(number for number, (since, _) in FORMS.items() if since <= made["time"])


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


def forms(found: list[dict[str, Any]]) -> str:
    """Of which form of the method the runs are, and those that found nothing."""
    text = f"By [form](antidote_results.md#forms-of-the-method) of the method: {_counted(found)}."
    lost = [each for each in found if each.get("status") == "not_found"]
    return text + (f" *Not found* are {_counted(lost)}." if lost else "")


def _counted(found: list[dict[str, Any]]) -> str:
    numbers = [form(record) for record in found]
    return ", ".join(f"{numbers.count(number)} of form {number}" for number in sorted(set(numbers)))


def earlier(suite: str) -> list[str]:
    """The files of a suite that are of an earlier form than its runs would be now."""
    paths = sorted((ROOT / "results" / suite).glob("*/antidote-s*.json"))
    return [path.relative_to(ROOT).as_posix() for path in paths if _is_earlier(json.loads(path.read_text()))]


def _is_earlier(record: dict[str, Any]) -> bool:
    if record["status"] == "not_found":
        return form(record) < 7
    clear = [trigger["strength"] >= STRONG for trigger in record["notes"].get("triggers", [])]
    return form(record) < (8 if len(set(clear)) > 1 else 6 if record["known"] >= ENOUGH else 5)


if __name__ == "__main__":
    print("\n".join(path for suite in sys.argv[1:] for path in earlier(suite)) if sys.argv[1:] else __doc__)
