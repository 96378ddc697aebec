"""Exact unlearning (EU): train a new model without the known poison."""

from __future__ import annotations

from potion.baselines.problem import Problem, Repair
from potion.runtime import forked_rng

__all__ = ["retrain"]


def retrain(problem: Problem) -> Repair:
    """The gold standard of privacy unlearning, and no cure for poison (Goel et al., 2024).

    A fresh model, trained by the victim's recipe on S_tr without S_f. The undiscovered poison brings the trigger back.
    With all of the poison known it is the reference that "healed" is measured against (FACTS 14).
    """
    with forked_rng(problem.seed):
        model = problem.new_model()
    return Repair(model=problem.trained(model, problem.recipe, problem.retained))
