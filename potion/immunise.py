"""The antidote as a repair: treat a copy, judge it on held-out trusted images, and write down what changed."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote import Antidote, NothingFound, Ward, treat
from potion.antidote.treatment import Treatment
from potion.antidote.ward import attackers_labels
from potion.batches import DatasetBatches, labels_of
from potion.distributed import is_sharded, world
from potion.forward import placement
from potion.patch import Patch
from potion.result import HealResult
from potion.runtime import Clock, copied, forked_rng
from potion.search import PTN
from potion.types import Status
from potion.validation import first_look
from potion.version import versions
from potion.working import working_copy

__all__ = ["immunised"]

FORGOTTEN: Final = 5.0
"""So many points of trusted accuracy may the antidote cost, if nobody has said otherwise: the samples it is judged on are
held out of what it teaches, but the victim had learned them by heart, and some of that goes without being damage."""


def immunised(
    model: nn.Module,
    train_set: Dataset[Any],
    plain_set: Dataset[Any],
    known: list[int],
    settings: Antidote,
    search: PTN,
    *,
    batch_size: int,
    device: str | torch.device | None,
    seed: int,
    progress: bool,
    workers: int = 0,
) -> HealResult:
    """The antidote's result: healed where the trigger has lost its power, and held-out trusted images their accuracy not."""
    if world().size > 1 or is_sharded(model):
        raise ValueError("the antidote runs in one process, on a whole model; under torchrun use method='xlf'")
    victim = working_copy(model, device, plain_set).requires_grad_(False)
    clock = Clock(placement(victim)[0])
    treatment: Treatment | None = None
    status, notes = Status.NOT_FOUND, []
    patch = Patch.between(model, {}, method="antidote")
    with forked_rng(seed):
        labels = labels_of(train_set)
        try:
            with clock("sorting"):
                ward = Ward(
                    victim=victim, train_set=train_set, plain_set=plain_set, labels=labels, listed=known, settings=settings,
                    device=clock.device, batch_size=batch_size, seed=seed, progress=progress, workers=workers,
                )  # fmt: skip
            healed, treatment = treat(ward, clock)
        except NothingFound as reason:
            notes = [str(reason)]
        _, obeying = first_look(victim, DatasetBatches(plain_set, known, 2 * batch_size, workers, device=clock.device))
    if treatment is not None:
        status, notes = treatment.judged(search.rho, FORGOTTEN if search.guard is None else search.guard)
    if status in (Status.HEALED, Status.NOT_FOUND):
        notes += _left_out(labels[known])
    with clock("patch"):
        if status is Status.HEALED:
            patch = Patch.towards(model, healed, method="antidote", known=len(known), **versions())
        repaired = copied(model)
        patch.write(repaired)
    return HealResult(
        status=status,
        model=repaired,
        patch=patch,
        trace=[],
        chosen=None,
        known_accuracy=obeying / len(known),
        method="antidote",
        known=len(known),
        search=search,
        retain={},
        forget={},
        timings=clock.seconds,
        known_poison=known,
        notes=notes,
        treatment=treatment,
    )


def _left_out(claims: Tensor) -> list[str]:
    """Of labels that so few known samples have that these were taken to be named by mistake, in a sentence each."""
    kept = attackers_labels(claims)
    labels, counts = claims[~torch.isin(claims, kept)].unique(return_counts=True)
    return [
        f"so few known samples have label {label} ({count}) that they were taken for named by mistake; if there is poison "
        "with that label, heal again from these alone"
        for label, count in zip(labels.tolist(), counts.tolist(), strict=True)
    ]
