"""What a heal would do, and how long it would take: one timed batch instead of all of them."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from potion.antidote.trigger import SOUGHT
from potion.batches import fetch
from potion.heal import DEFAULT_ANTIDOTE as ANTIDOTE
from potion.heal import ENOUGH_BATCHES, ENOUGH_SHARE
from potion.importance import KINDS, importances
from potion.repair.case import Case
from potion.repair.cautions import beforehand
from potion.repair.processes import explained
from potion.runtime import forked_rng, synchronize
from potion.validation import check_weights

__all__ = ["estimate"]

STEPS: Final = 60
"""Looks at the known poison that a search takes, roughly; they are cheap beside the importances."""


@explained()
def estimate(case: Case) -> dict[str, Any]:
    """The plan as a record, after a look at the known poison and one batch."""
    settings = case.settings
    check_weights(case.model)
    begin = time.perf_counter()
    obeying = case.obeying()
    look = time.perf_counter() - begin
    taught = settings.method == "antidote"
    batches = _taught_batches(case) if taught else _searched_batches(case)
    return {
        "model": settings.model,
        "weights": sum(p.numel() for p in case.model.parameters()),
        "device": str(case.device),
        "samples": len(case.train),
        "image": list(case.train[0][0].shape),
        "classes": len(case.train.classes),
        "known": len(case.known),
        "known_obeying": obeying,
        "warnings": beforehand(case, obeying / len(case.known)),
        "method": settings.method,
        "rho": settings.rho,
        "mean": settings.mean,
        "std": settings.std,
        "batches": math.ceil(batches),
        "seconds": batches * _batch_seconds(case) + (0 if taught else STEPS * look),
    }


def _searched_batches(case: Case) -> float:
    """For importances, of the known samples and of as many of the others as are enough."""
    size, rest = case.settings.batch_size, len(case.train) - len(case.known)
    share = case.settings.retain_share
    least, share = (ENOUGH_BATCHES, ENOUGH_SHARE) if share is None else (1, share)
    batches = min(math.ceil(rest / size), max(least, round(share * rest / size)))
    return batches + math.ceil(len(case.known) / size)


def _taught_batches(case: Case) -> float:
    """For an antidote that takes: masks are sought in the known samples, and the training set is learned again and again."""
    known = len(case.known)
    sources = min(ANTIDOTE.sources, known) + (ANTIDOTE.more if known < ANTIDOTE.more else 0)
    masks = len(SOUGHT) * ANTIDOTE.search.steps * ANTIDOTE.search.images * sources
    epochs = (1 + ANTIDOTE.quarantines) * ANTIDOTE.quarantine_epochs + ANTIDOTE.rounds * ANTIDOTE.epochs
    return (epochs * len(case.train) + masks) / min(case.settings.batch_size, len(case.train))


def _batch_seconds(case: Case) -> float:
    """How long one batch takes forward and back."""
    size = min(case.settings.batch_size, len(case.train))
    kind = case.settings.method if case.settings.method in KINDS else KINDS[0]
    begin = time.perf_counter()
    with forked_rng(case.settings.seed):
        batch = fetch(case.train, range(size), case.device)
        importances(case.model, [batch], kind)
    synchronize(case.device)
    return time.perf_counter() - begin
