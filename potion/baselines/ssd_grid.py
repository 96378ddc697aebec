"""SSD with the hyper-parameter search of Goel et al.: 50 settings, the best by a mean of two accuracies."""

from __future__ import annotations

from itertools import product
from typing import Final

import torch
from torch.utils.data import TensorDataset

from potion.baselines.problem import Problem, Repair
from potion.batches import DatasetBatches
from potion.dampening import dampen
from potion.metrics import accuracy
from potion.progress import Progress
from potion.runtime import forked_rng, generator_for

__all__ = ["ssd_grid"]

ALPHAS: Final = (0.1, 1.0, 10.0, 50.0, 100.0, 500.0, 1e3, 1e4, 1e5, 1e6)
LAMBDAS: Final = (0.1, 0.5, 1.0, 5.0, 10.0)
"""As multiples of alpha."""
HELD_OUT: Final = 0.1
"""The share of S_tr without S_f that judges the damage."""


def ssd_grid(problem: Problem) -> Repair:
    r"""Selective synaptic dampening (Foster et al., 2024) as tuned by Goel et al. (2024), FACTS 13.

    .. math:: \max_{\alpha,\; \lambda \in \{0.1, 0.5, 1, 5, 10\} \alpha}
        \tfrac12 \left(\mathrm{Acc}_{S_f}(\infty) - \mathrm{Acc}_{S_f}(\alpha, \lambda)\right)
        + \tfrac12\, \mathrm{Acc}_{val}(\alpha, \lambda)

    The validation samples are held out of S_tr (and so may be poisoned themselves, and the victim has trained on them); the
    importances do not see them, and the test set is seen by nobody. Importances are computed once for all 50 settings. The
    first of equal ones is taken.
    """
    model = problem.copied()
    held_out, rest = _split(problem.retained, problem.seed)
    retain = problem.retain_importances(model, rest, "ssd")
    forget = problem.forget_importances(model, "ssd")
    known, validation = _drawn(problem, problem.known), _drawn(problem, held_out)
    before = accuracy(model, known)
    best, chosen, accuracies = float("-inf"), (0.0, 0.0), (before, 0.0)
    grid = list(product(ALPHAS, LAMBDAS))
    with Progress(problem.progress) as bars:
        for alpha, multiple in bars.track(grid, "settings of SSD", len(grid)):
            patch = dampen(model, retain, forget, alpha, lam=multiple * alpha)
            patch.apply(model)
            forgotten, kept = accuracy(model, known), accuracy(model, validation)
            patch.revert(model)
            if (score := ((before - forgotten) + kept) / 2) > best:
                best, chosen, accuracies = score, (alpha, multiple * alpha), (forgotten, kept)
    patch = dampen(model, retain, forget, chosen[0], lam=chosen[1])
    patch.apply(model)
    notes = {
        "alpha": chosen[0],
        "lambda": chosen[1],
        "weights_changed": patch.count,
        "score": best,
        "known_accuracy": [before, accuracies[0]],
        "validation_accuracy": accuracies[1],
    }
    return Repair(model=model, notes=notes)


def _split(indices: list[int], seed: int) -> tuple[list[int], list[int]]:
    order = torch.randperm(len(indices), generator=generator_for("held out", seed)).tolist()
    count = max(1, round(HELD_OUT * len(indices)))
    return sorted(indices[place] for place in order[:count]), sorted(indices[place] for place in order[count:])


def _drawn(problem: Problem, indices: list[int]) -> TensorDataset:
    """The samples, read and (where there is no plain view) augmented once: all settings are judged on the same images."""
    plain = problem.train_set if problem.plain_set is None else problem.plain_set
    with forked_rng(problem.seed):
        batches = list(
            DatasetBatches(plain, indices, problem.batch_size, problem.workers, problem.device, problem.seed)
        )
    inputs, labels = zip(*batches, strict=True)
    return TensorDataset(torch.cat(inputs), torch.cat(labels))
