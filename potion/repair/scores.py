"""What the model is worth on the owner's own test images, before and after, and on how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import nn

from potion.metrics import predict
from potion.repair.case import Case
from potion.repair.seen import Seen
from potion.result import HealResult
from potion.tradeoff import AnyRepair
from potion.types import Step

__all__ = ["counts", "curve", "score"]

POINTS: Final = 16
"""Of a search whose clean accuracy is measured: each costs a look at all clean images, and the search may have hundreds."""


def score(case: Case, model: nn.Module) -> dict[str, float | None] | None:
    """In percent, as :class:`potion.metrics.Scores`; ``None`` for what there is no data for.

    The attack's success is counted where all the known poison has one label, the attacker's.
    """
    if case.clean is None and case.triggered is None:
        return None
    found: dict[str, float | None] = dict.fromkeys(("clean_accuracy", "clean_label_accuracy", "attack_success_rate"))
    if case.clean is not None:
        found["clean_accuracy"] = _clean(case, model)
    if case.triggered is not None:
        predicted, truth = _predict(case, model, case.triggered)
        found["clean_label_accuracy"] = _percent(predicted == truth)
        wanted = _target(case)
        if wanted is not None and (others := truth != wanted).any():
            found["attack_success_rate"] = _percent(predicted[others] == wanted)
    return found


def curve(case: Case, result: HealResult) -> list[dict[str, float]]:
    """What other stopping points of the search would have cost in clean accuracy; nothing where there are no clean images.

    A few points of the trace stand for all of it. How much of the known poison obeys there the search has seen already.
    """
    steps = [] if case.clean is None else _spread(result.trace, result.chosen)
    if not steps:
        return []
    repair, found = AnyRepair(case.model, result), []
    for step in steps:
        weights, clean = repair.at(step.alpha, lambda model: _clean(case, model))
        found.append({"s": step.s, "weights": weights, "known": 100 * step.known_accuracy, "clean": clean})
    return found


def counts(case: Case) -> dict[str, int | None]:
    """How many images each score is about, from which its interval follows; the attack can only work on other classes."""
    triggered, wanted = case.triggered, _target(case)
    return {
        "n_clean": None if case.clean is None else len(case.clean),
        "n_triggered": None if triggered is None else len(triggered),
        "n_attacked": None if triggered is None or wanted is None else int((triggered.labels != wanted).sum()),
    }


def _spread(trace: Sequence[Step], chosen: Step | None) -> list[Step]:
    """At most so many points, evenly spaced, and the chosen one."""
    places = {round(k * (len(trace) - 1) / (POINTS - 2)) for k in range(POINTS - 1)} if trace else set()
    return [step for place, step in enumerate(trace) if place in places or step == chosen]


def _target(case: Case) -> int | None:
    """The attacker's class, where all the known poison has one label."""
    targets = set(case.train.labels[case.known].tolist())
    return int(targets.pop()) if len(targets) == 1 else None


def _clean(case: Case, model: nn.Module) -> float:
    assert case.clean is not None
    predicted, truth = _predict(case, model, case.clean)
    return _percent(predicted == truth)


def _predict(case: Case, model: nn.Module, data: Seen) -> Any:
    return predict(model, data, batch_size=case.settings.batch_size, workers=case.settings.workers)


def _percent(hits: Any) -> float:
    return 100 * int(hits.sum()) / len(hits)
