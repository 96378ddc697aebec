"""Which other training samples are poison: everything with an attacker's label, ranked by how sure we are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import torch
from torch import nn
from torch.utils.data import Dataset

from potion.antidote.margins import margins
from potion.antidote.outliers import mistaken
from potion.antidote.ward import attackers_labels
from potion.batches import labels_of
from potion.distributed import is_sharded
from potion.fingerprint import fingerprint
from potion.result import HealResult
from potion.runtime import forked_rng
from potion.types import Status
from potion.working import working_copy

__all__ = ["Suspect", "Suspects", "discover"]

MISTAKES: Final = 0.05
"""So many of the samples that are taken to be poison may be clean."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A sample with an attacker's label.

    ``score`` estimates how many of the samples that are at least as suspicious are poison; ``believed`` the class that the
    healed model gives it; ``fell`` by how much its label lost in the repair (logits).
    """

    index: int
    label: int
    believed: int
    score: float
    fell: float


@dataclass(frozen=True, kw_only=True)
class Suspects(Sequence[Suspect]):
    """All suspects, the surest first; the first ``cut`` of them are taken to be poison."""

    ranked: list[Suspect]
    cut: int

    @property
    def poison(self) -> list[int]:
        """The indices of the samples that are taken to be poison."""
        return [suspect.index for suspect in self.ranked[: self.cut]]

    def __repr__(self) -> str:
        return f"<Suspects {len(self)} samples; the first {self.cut} are taken to be poison>"

    def __len__(self) -> int:
        return len(self.ranked)

    @overload
    def __getitem__(self, place: int) -> Suspect: ...

    @overload
    def __getitem__(self, place: slice) -> list[Suspect]: ...

    def __getitem__(self, place: int | slice) -> Suspect | list[Suspect]:
        return self.ranked[place]

    def __iter__(self) -> Iterator[Suspect]:
        return iter(self.ranked)


def discover(
    model: nn.Module,
    result: HealResult,
    train_set: Dataset[Any],
    *,
    unaugmented: Dataset[Any] | None = None,
    batch_size: int = 512,
    device: str | torch.device | None = None,
    seed: int = 0,
    workers: int = 0,
) -> Suspects:
    """Rank the training samples that have the label of known poison, by how sure we are that they are poison too.

    What the trigger gave to a label, the repair has taken away: labels of poison lose far more than those of clean
    samples, also where they happen to be right. Clean samples' labels rise and fall about a middle
    (:func:`~potion.antidote.outliers.clean_middle`). How many rise by some amount tells how many clean ones will have
    fallen by twice as much, and so how many of those that did are poison. The cut is where one in twenty would be a
    mistake. That is an estimate: small networks were seen to make more. What the antidote itself has corrected is taken
    to be poison in any case. The known samples themselves are left out.
    """
    if result.status is not Status.HEALED:
        raise ValueError(f"discover compares a poisoned with a healed model, but the result is {result.status.value!r}")
    if is_sharded(model):
        raise ValueError("discover needs the whole model in one process")
    if fingerprint(model) != result.patch.before:
        raise ValueError("discover needs the poisoned model that the result was made from, but model has other weights")
    plain_set = train_set if unaugmented is None else unaugmented
    victim, healed = (working_copy(each, device, plain_set) for each in (model, result.model))
    labels = labels_of(train_set)
    claimed = torch.isin(labels, attackers_labels(labels[result.known_poison]))
    claimed[result.known_poison] = False
    suspects = torch.nonzero(claimed).flatten()
    if not len(suspects):
        return Suspects(ranked=[], cut=0)
    with forked_rng(seed):
        before, _ = margins(victim, plain_set, suspects.tolist(), batch_size, workers)
        after, believed = margins(healed, plain_set, suspects.tolist(), batch_size, workers)
    fell = before - after
    doubt = torch.ones_like(fell)
    for label in labels[suspects].unique():
        mine = labels[suspects] == label
        doubt[mine] = mistaken(fell[mine])
    if result.treatment is not None:  # what it has corrected is poison by its own, stricter rule
        seen = torch.isin(suspects, torch.tensor(list(result.treatment.corrected), dtype=torch.long))
        doubt[seen] = doubt[seen].clamp(max=MISTAKES)
    ranking = sorted(range(len(suspects)), key=lambda row: (float(doubt[row]), -float(fell[row])))
    ranked = [
        Suspect(
            index=int(suspects[row]),
            label=int(labels[suspects[row]]),
            believed=int(believed[row]),
            score=1 - float(doubt[row]),
            fell=float(fell[row]),
        )
        for row in ranking
    ]
    return Suspects(ranked=ranked, cut=int((doubt <= MISTAKES).sum()))
