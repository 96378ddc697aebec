"""Do nothing: the poisoned model as it is."""

from __future__ import annotations

from potion.baselines.problem import Problem, Repair

__all__ = ["none"]


def none(problem: Problem) -> Repair:
    """The row that every other one is measured against."""
    return Repair(model=problem.copied())
