"""What :func:`potion.heal` returns: the repaired model, and the honest story of how far it got."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from potion.antidote.treatment import Treatment
from potion.patch import Patch
from potion.search import PTN
from potion.types import Importances, Status, Step

__all__ = ["HealResult"]


@dataclass(frozen=True, kw_only=True)
class HealResult:
    """The outcome of one heal.

    ``model`` is a repaired copy where ``status`` is ``HEALED`` and an unchanged copy otherwise; ``patch`` is what was done
    to it (empty where nothing was). ``trace`` holds every point the search looked at, sorted by s, ``chosen`` the one
    taken; ``known_accuracy`` is the fraction of the known poison that obeyed the attacker before, ``trusted_accuracy`` that
    of the trusted samples that were right, where the search watches these. ``retain`` and ``forget`` are the importances
    it all rests on (empty where the search never began), so that any other point of the trace is one
    ``potion.dampen(model, result.retain, result.forget, step.alpha)`` away. ``timings`` are seconds a phase.
    ``known_poison`` are the indices given; ``treatment`` is what the antidote found and did; ``notes`` say what else is
    worth knowing.
    """

    status: Status
    model: nn.Module
    patch: Patch
    trace: list[Step]
    chosen: Step | None
    known_accuracy: float
    method: str
    known: int
    search: PTN
    retain: Importances
    forget: Importances
    timings: dict[str, float]
    known_poison: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    treatment: Treatment | None = None
    trusted_accuracy: float | None = None

    def __repr__(self) -> str:
        return f"<HealResult {self.summary()}>"

    def summary(self) -> str:
        """The outcome in one sentence."""
        return " ".join([f"{self.method}: {self._explained()}", *(f"Note: {note}." for note in self.notes)])

    def _explained(self) -> str:  # noqa: PLR0911 (one for each status)
        goal = f"the goal of {self.search.rho * self.known_accuracy:.1%} (rho = {self.search.rho:g})"
        match self.status:
            case Status.HEALED if self.treatment is not None:
                return f"healed; {self.treatment.told()}"
            case Status.HEALED:
                assert self.chosen is not None
                steps = self.trace.index(self.chosen) + 1
                return (
                    f"healed; {self.patch.count:,} weights were dampened, which took the accuracy on the {self.known} known "
                    f"poisoned sample{'s' * (self.known > 1)} from {self.known_accuracy:.1%} to "
                    f"{self.chosen.known_accuracy:.1%} in {steps} step{'s' * (steps > 1)}."
                )
            case Status.NOT_LEARNED:
                return (
                    "not learned; the model calls none of the known poison by its poisoned label, so there is no trigger "
                    "to search for, and nothing was changed."
                )
            case Status.SATURATED:
                return (
                    f"saturated; every weight that matters more to the known poison than to the rest is dampened already, "
                    f"yet the accuracy on the known poison stays at {self.trace[-1].known_accuracy:.1%}, above {goal}; "
                    "the original weights were kept."
                )
            case Status.GUARDED:
                return (
                    f"guarded; going on would have cost more accuracy on trusted samples than allowed, and the known poison "
                    f"was still above {goal}; the original weights were kept."
                )
            case Status.NOT_FOUND:
                return "not found; there is no sign of a trigger, and nothing was changed."
            case Status.EXHAUSTED if not self.trace:
                return "exhausted; the antidote did not take, and the original weights were kept."
            case Status.EXHAUSTED:
                return (
                    f"exhausted; after {len(self.trace)} steps the accuracy on the known poison is still "
                    f"{self.trace[-1].known_accuracy:.1%}, above {goal}; the original weights were kept."
                )

    def to_dict(self) -> dict[str, Any]:
        """The result without its tensors, ready for JSON. Accuracies of the trace stay fractions."""
        return {
            "method": self.method,
            "known": self.known,
            "status": self.status.value,
            "summary": self.summary(),
            "known_accuracy": self.known_accuracy,
            "trusted_accuracy": self.trusted_accuracy,
            "search": asdict(self.search),
            "chosen": None if self.chosen is None else asdict(self.chosen),
            "trace": [asdict(step) for step in self.trace],
            "steps": len(self.trace),
            "weights_changed": self.patch.count,
            "timings": self.timings,
            "notes": self.notes,
            **({} if self.treatment is None else {"treatment": self.treatment.to_dict()}),
        }
