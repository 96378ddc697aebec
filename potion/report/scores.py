"""The scores before and after, with their intervals."""

from __future__ import annotations

from typing import Any, Final

from potion.metrics import wilson
from potion.report.checks import ReportError, number, table

__all__ = ["scores"]

SCORES: Final = (
    ("clean_accuracy", "Clean images, classified rightly", ("n_clean",), "up"),
    ("clean_label_accuracy", "Images with the trigger, classified rightly", ("n_triggered",), "up"),
    ("attack_success_rate", "Images with the trigger, obeying the attacker", ("n_attacked", "n_triggered"), "down"),
)


def scores(data: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each score that was taken: before and after with their intervals, and what changed."""
    given = table(data, "scores")
    before, after = table(given, "before"), table(given, "after")
    found = []
    for key, label, counted, good in SCORES:
        sides = [
            _scored(number(side, key), _count([(t, name) for name in counted for t in (side, given, data)]))
            for side in (before, after)
        ]
        if not any(sides):
            continue
        change = sides[1]["value"] - sides[0]["value"] if sides[0] and sides[1] else None
        verdict = "" if not change else "better" if (change > 0) == (good == "up") else "worse"
        found.append({"label": label, "before": sides[0], "after": sides[1], "change": change, "verdict": verdict})
    return found


def _count(places: list[tuple[dict[str, Any], str]]) -> int:
    """The first of these numbers that is there; 0 where none is."""
    return next((int(n) for n in (number(where, name) for where, name in places) if n), 0)


def _scored(value: float | None, count: int) -> dict[str, Any] | None:
    if value is None:
        return None
    if not 0 <= value <= 100:
        raise ReportError(f"scores are percentages from 0 to 100, got {value:g}")
    low, high = wilson(value, count) if count > 0 else (None, None)
    return {"value": value, "low": low, "high": high, "count": count}
