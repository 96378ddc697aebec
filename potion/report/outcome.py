"""How a heal ended, said to somebody who has not read the paper."""

from __future__ import annotations

from typing import Any, NamedTuple

from potion.report.checks import ReportError
from potion.types import Status

__all__ = ["Outcome", "outcome"]


class Outcome(NamedTuple):
    """``tone`` is good, bad or neutral: the page gives it a shape and a colour."""

    tone: str
    title: str
    sentence: str
    caution: str


KEPT = "The original weights were kept."


def outcome(result: dict[str, Any]) -> Outcome:
    """The words for the status of a result."""
    try:
        status = Status(result["status"])
    except ValueError:
        raise ReportError(f"status {result['status']!r} is unknown; known are {', '.join(Status)}") from None
    before, trace = result["known_accuracy"], result["trace"]
    known = "the known poisoned sample" if result["known"] == 1 else f"the {result['known']:,} known poisoned samples"
    goal = f"{result['search']['rho'] * before:.1%}"
    match status:
        case Status.HEALED:
            return Outcome(
                "good",
                "Healed",
                f"The trigger stopped working on the known poison: of {known}, {result['chosen']['known_accuracy']:.1%} "
                f"still get the attacker's label, before it was {before:.1%}. {result['weights_changed']:,} weights "
                f"{'was' if result['weights_changed'] == 1 else 'were'} dampened for it.",
                "This is judged by the known poison alone. Whether other triggered images are classified rightly has to be "
                "measured on held-out data.",
            )
        case Status.SATURATED:
            return Outcome(
                "bad",
                "Not healed",
                "Every weight that matters more to the known poison than to the rest is dampened already, and still "
                f"{trace[-1]['known_accuracy']:.1%} of it get the attacker's label; the goal was {goal}. {KEPT}",
                "The trigger still works. Another method, or more known samples, may find it.",
            )
        case Status.EXHAUSTED:
            return Outcome(
                "bad",
                "Not healed",
                f"The search used up its {len(trace):,} steps while {trace[-1]['known_accuracy']:.1%} of the known poison "
                f"still get the attacker's label; the goal was {goal}. {KEPT}",
                "The trigger still works. More steps, or a larger step, let the search go on.",
            )
        case Status.NOT_LEARNED:
            return Outcome(
                "neutral",
                "Nothing to heal",
                f"The model gives none of {known} the attacker's label, so there is no trigger to search for. {KEPT}",
                "Either the model never learned this trigger, or these samples are not poison.",
            )
