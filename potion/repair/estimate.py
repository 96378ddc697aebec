"""What a heal would do, and how long it would take: one timed batch instead of all of them."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from potion.batches import fetch
from potion.heal import ENOUGH_BATCHES, ENOUGH_SHARE
from potion.importance import KINDS, importances
from potion.repair.case import Case
from potion.runtime import forked_rng, synchronize

__all__ = ["estimate"]

STEPS: Final = 60
"""Looks at the known poison that a search takes, roughly; they are cheap beside the importances."""


def estimate(case: Case) -> dict[str, Any]:
    """The plan as a record, after a look at the known poison and one batch."""
    settings = case.settings
    begin = time.perf_counter()
    obeying = case.obeying()
    look = time.perf_counter() - begin
    return {
        "model": settings.model,
        "weights": sum(p.numel() for p in case.model.parameters()),
        "device": str(case.device),
        "samples": len(case.train),
        "image": list(case.train[0][0].shape),
        "classes": len(case.train.classes),
        "known": len(case.known),
        "known_obeying": obeying,
        "method": settings.method,
        "rho": settings.rho,
        "mean": settings.mean,
        "std": settings.std,
        "seconds": _importance_seconds(case) + STEPS * look,
    }


def _importance_seconds(case: Case) -> float:
    size, rest = case.settings.batch_size, len(case.train) - len(case.known)
    share = case.settings.retain_share
    least, share = (ENOUGH_BATCHES, ENOUGH_SHARE) if share is None else (1, share)
    batches = min(math.ceil(rest / size), max(least, round(share * rest / size)))
    batches += math.ceil(len(case.known) / size)
    kind = case.settings.method if case.settings.method in KINDS else KINDS[0]
    begin = time.perf_counter()
    with forked_rng(case.settings.seed):
        batch = fetch(case.train, range(min(size, len(case.train))), case.device)
        importances(case.model, [batch], kind)
    synchronize(case.device)
    return batches * (time.perf_counter() - begin)
