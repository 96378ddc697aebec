"""SCRUB: obey the teacher on what is kept, disobey it on what is to be forgotten."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from potion.baselines.distillation import answers, divergence, frozen
from potion.baselines.problem import Problem, Repair
from potion.training import Objective

__all__ = ["scrub"]

EPOCHS: Final = 3
MAX_EPOCHS: Final = 2
LR: Final = 5e-4
TEMPERATURE: Final = 4.0
KL_WEIGHT: Final = 0.001
CE_WEIGHT: Final = 0.99


def scrub(problem: Problem) -> Repair:
    r"""SCRUB (Kurmanji et al., 2023), alternating between two objectives.

    .. math:: \max_\theta\; KL(f_T(x) \| f_\theta(x)),\; x \in S_f \qquad
        \min_\theta\; 0.001\, KL(f_T(x) \| f_\theta(x)) + 0.99\, CE(f_\theta(x), y),\; x \in S_{tr} \setminus S_f

    Three epochs, the first two of which begin with a max-step over S_f; temperature 4; SGD, rate 5e-4 without warm-up.
    """
    teacher, student = frozen(problem.copied()), problem.copied()

    def forget(inputs: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        return -divergence(outputs, answers(teacher, inputs), TEMPERATURE).mean()

    def keep(inputs: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        distance = divergence(outputs, answers(teacher, inputs), TEMPERATURE).mean()
        return KL_WEIGHT * distance + CE_WEIGHT * cross_entropy(outputs, labels)

    for epoch in range(EPOCHS):
        if epoch < MAX_EPOCHS:
            _epoch(problem, student, problem.known, forget, epoch)
        _epoch(problem, student, problem.retained, keep, epoch)
    return Repair(model=student)


def _epoch(problem: Problem, student: nn.Module, indices: list[int], objective: Objective, epoch: int) -> None:
    batches = math.ceil(len(indices) / problem.recipe.batch_size)
    recipe = replace(problem.recipe, iterations=batches, optimizer="sgd", lr=LR, warm_up=0.0)
    problem.trained(student, recipe, indices, objective=objective, drop_rest=False, seed=problem.seed + epoch)
