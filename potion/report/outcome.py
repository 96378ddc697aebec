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
STOPPED = 0.3
"""A trigger has stopped working on known poison of which no more than so much still obeys."""


def outcome(result: dict[str, Any]) -> Outcome:  # noqa: PLR0911 (one for each status)
    """The words for the status of a result."""
    try:
        status = Status(result["status"])
    except ValueError:
        raise ReportError(f"status {result['status']!r} is unknown; known are {', '.join(Status)}") from None
    before, trace = result["known_accuracy"], result["trace"]
    known = (
        "the one known poisoned sample" if result["known"] == 1 else f"the {result['known']:,} known poisoned samples"
    )
    last = result["chosen"] or (trace[-1] if trace else {"known_accuracy": before})
    left, goal = _percent(last["known_accuracy"]), _percent(result["search"]["rho"] * before)
    changed = f"{result['weights_changed']:,} weight{' was' if result['weights_changed'] == 1 else 's were'}"
    match status:
        case Status.HEALED if treated := result.get("treatment"):
            power, accuracy = ([_percent(each) for each in treated[key]] for key in ("power", "trusted"))
            return Outcome(
                "good",
                "Healed",
                f"A trigger was found in {known} and taken out: of {treated['judged_by']} {power[1]} get the attacker's "
                f"label, before it was {power[0]}. Accuracy on trusted samples went from {accuracy[0]} to {accuracy[1]}. "
                f"For this {changed} changed a little.",
                "This is judged by the trigger that was found, on images whose labels can be trusted, and by known ones.",
            )
        case Status.HEALED:
            works = "stopped working on" if last["known_accuracy"] <= STOPPED * before else "works less often on"
            return Outcome(
                "good",
                "Healed",
                f"The trigger {works} {known}: {left} still get the attacker's label, before it was "
                f"{_percent(before)}. For this {changed} dampened.",
                "This is judged by the known poison alone. Whether other triggered images are classified rightly has to be "
                "measured on held-out data.",
            )
        case Status.SATURATED:
            return Outcome(
                "bad",
                "Not healed",
                "Every weight that matters more to the known poison than to the rest is dampened already, and still "
                f"{left} of it get the attacker's label; the goal was {goal}. {KEPT}",
                "The trigger still works. Another method, or more known samples, may find it.",
            )
        case Status.EXHAUSTED:
            return Outcome(
                "bad",
                "Not healed",
                f"The search used up its {len(trace):,} steps while {left} of the known poison "
                f"still get the attacker's label; the goal was {goal}. {KEPT}",
                "The trigger still works. More steps, or a larger step, let the search go on.",
            )
        case Status.GUARDED:
            return Outcome(
                "bad",
                "Not healed",
                f"Going on would have cost more accuracy on trusted samples than allowed, while {left} of the known poison "
                f"still get the attacker's label; the goal was {goal}. {KEPT}",
                "The trigger still works. "
                + ("More" if _asked_for(result) == "antidote" else "The antidote, or more")
                + " known samples, may take it out at a lower price.",
            )
        case Status.NOT_FOUND:
            return Outcome(
                "neutral",
                "Nothing found",
                f"There is no sign of a trigger in {known}. {KEPT}",
                "Either these samples are not poison, or their trigger is of a kind that cannot be localised.",
            )
        case Status.NOT_LEARNED:
            return Outcome(
                "neutral",
                "Nothing to heal",
                f"The model gives none of {known} the attacker's label, so there is no trigger to search for. {KEPT}",
                "Either the model never learned this trigger, or these samples are not poison.",
            )


def _asked_for(result: dict[str, Any]) -> Any:
    """The method on the command line; where an antidote does not take, another one's result is shown."""
    return (result.get("inputs") or {}).get("method", result["method"])


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}\N{NO-BREAK SPACE}%"
