"""The demo's result file as the result of its headline heal, with the scores and the table of all the others."""

from __future__ import annotations

from typing import Any

from potion.demo import HEADLINE
from potion.report.checks import ReportError, rows

__all__ = ["headline", "is_demo"]


def is_demo(data: Any) -> bool:
    """Whether this is what ``potion demo`` writes."""
    return isinstance(data, dict) and all(isinstance(data.get(key), list) for key in ("rows", "results", "curve"))


def headline(data: dict[str, Any]) -> dict[str, Any]:
    """The result that the demo keeps weights and curve of."""
    found = [each for each in rows(data, "results") if (each.get("method"), each.get("known")) == HEADLINE]
    if not found:
        raise ReportError(
            f"results has no {HEADLINE[0]} from {HEADLINE[1]} known samples, which the demo's page is about"
        )
    table = rows(data, "rows", numbers=("known",), texts=("method",))
    scores = {(row["method"], row["known"]): row for row in table}
    taken = {"before": scores.get(("none", 0)), "after": scores.get(HEADLINE)}
    return {**found[0], "scores": taken, "curve": data["curve"], "runs": table}
