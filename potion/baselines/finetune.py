"""Catastrophic forgetting (CF): go on training without the known poison."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from potion.baselines.problem import Problem, Repair

__all__ = ["finetune"]

SHARE: Final = 0.1
"""Iterations, as a share of the victim's."""


def finetune(problem: Problem) -> Repair:
    """Fine-tune the victim on S_tr without S_f (Goodfellow et al., 2013; CF in Goel et al., 2024).

    The victim's own recipe and schedule, a tenth as long. Nothing pushes the trigger out, and the undiscovered poison
    keeps it in.
    """
    recipe = replace(problem.recipe, iterations=max(1, round(SHARE * problem.recipe.iterations)))
    return Repair(model=problem.trained(problem.copied(), recipe, problem.retained))
