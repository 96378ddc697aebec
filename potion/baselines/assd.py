"""Adaptive SSD: the threshold from the size of the known poison, without a search."""

from __future__ import annotations

from potion.baselines.problem import Problem, Repair
from potion.dampening import dampen
from potion.search import alpha_at

__all__ = ["assd"]


def assd(problem: Problem) -> Repair:
    r"""Parameter-tuning-free SSD (Schoepf, Foster and Brintrup, 2024).

    .. math:: \alpha = P_p([]_f / []_{tr}), \quad p = 100 - \ln(1 + 100\, |S_f| / |S_{tr}|), \quad \lambda = 1

    It assumes that all of the forget set is known; with poison it is not, and the percentile comes out wrong.
    """
    model = problem.copied()
    retain = problem.retain_importances(model, problem.retained, "ssd")
    forget = problem.forget_importances(model, "ssd")
    alpha = alpha_at(retain, forget, len(problem.known) / problem.size)
    patch = dampen(model, retain, forget, alpha)
    patch.apply(model)
    return Repair(model=model, notes={"alpha": alpha, "weights_changed": patch.count})
