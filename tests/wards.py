"""Wards for tests of the antidote's parts, on a CPU, and verdicts as a model would give them."""

from __future__ import annotations

import torch

from potion.antidote.verdict import Verdict
from potion.antidote.ward import Ward
from potion.batches import labels_of


def ward_of(victim, data, known, *, plain=None, batch_size=512, **more):
    return Ward(
        victim=victim.eval().requires_grad_(False),
        train_set=data,
        plain_set=data if plain is None else plain,
        labels=labels_of(data),
        listed=known,
        device=torch.device("cpu"),
        batch_size=batch_size,
        **more,
    )


def said(ward, placed, poison=None):
    """By how much labels win, and who is poison; nobody was shown."""
    guesses, nobody = torch.zeros(len(placed), dtype=torch.long), torch.zeros(len(placed), dtype=torch.bool)
    return Verdict(ward=ward, placed=placed, guesses=guesses, poison=nobody if poison is None else poison, shown=nobody)
