"""Bad Teacher: learn from the victim what is kept, and from an ignorant model what is to be forgotten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from potion.baselines.distillation import answers, divergence, frozen
from potion.baselines.problem import Problem, Repair
from potion.batches import Batch, Overlay
from potion.runtime import forked_rng, generator_for

__all__ = ["bad_teacher"]

LR: Final = 1e-4
TEMPERATURE: Final = 1.0
RETAINED_SHARE: Final = 0.3


def bad_teacher(problem: Problem) -> Repair:
    r"""Bad Teacher (Chundawat et al., 2023).

    .. math:: \min_\theta\; (1 - u)\, KL(f_T(x) \| f_\theta(x)) + u\, KL(f_D(x) \| f_\theta(x))

    with u = 1 for the known poison, f_T the victim and f_D a randomly initialised model. One epoch over S_f and a random
    30 % of the rest; temperature 1; AdamW, rate 1e-4, no weight decay, no warm-up.
    """
    competent, student = frozen(problem.copied()), problem.copied()
    with forked_rng(problem.seed):
        ignorant = frozen(problem.new_model().to(problem.device))
    retained = problem.retained
    order = torch.randperm(len(retained), generator=generator_for("bad teacher", problem.seed)).tolist()
    kept = [retained[place] for place in order[: round(RETAINED_SHARE * len(order))]]
    flagged = _Flagged(problem.train_set, problem.known)

    def follow(inputs: Tensor, outputs: Tensor, is_known: Tensor) -> Tensor:
        teacher = torch.where(is_known[:, None] == 1, answers(ignorant, inputs), answers(competent, inputs))
        return divergence(outputs, teacher, TEMPERATURE).mean()

    samples = sorted(kept + problem.known)
    recipe = replace(
        problem.recipe,
        iterations=math.ceil(len(samples) / problem.recipe.batch_size),
        optimizer="adamw",
        lr=LR,
        weight_decay=0.0,
        warm_up=0.0,
    )
    return Repair(model=problem.trained(student, recipe, samples, objective=follow, drop_rest=False, dataset=flagged))


class _Flagged(Overlay):
    """The training set with another question in the place of the label: is this sample known to be poison?"""

    def __init__(self, below: Dataset[Any], known: list[int]) -> None:
        self.below = below
        self.flags = torch.zeros(len(below), dtype=torch.long)  # type: ignore[arg-type]
        self.flags[known] = 1

    def changed(self, inputs: Tensor, labels: Tensor, indices: Sequence[int]) -> Batch:
        return inputs, self.flags[list(indices)].to(labels.device)
