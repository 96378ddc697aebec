"""Neutralising a trigger by dampening: importances of the known poison and of the rest, and the search (Alg. 1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import Batch, DatasetBatches, fetch
from potion.cache import cached, content_key
from potion.distributed import agreed, failed_together, is_sharded, summed, summed_number, world
from potion.forward import logits, placement
from potion.importance import averaged, summed_importances
from potion.progress import Progress
from potion.recorded import recorded
from potion.runtime import Clock, forked_rng
from potion.search import PTN, Outcome, search
from potion.types import Importances, Look, Status
from potion.validation import check_labels, first_look

__all__ = ["Found", "Neutralisation", "seen"]

FEW: Final = 256
"""So many labels are looked at where nothing else is."""


class Found(NamedTuple):
    """How the search ended, what it began with, and the importances it rests on."""

    outcome: Outcome
    known_accuracy: float
    trusted_accuracy: float | None
    retain: Importances
    forget: Importances


@dataclass(kw_only=True)
class Neutralisation:
    """Everything from the known poison to the end of the search, on a private copy of the model."""

    model: nn.Module
    train_set: Dataset[Any]
    plain_set: Dataset[Any]
    known: list[int]
    rest: list[int]
    watched: list[int]
    read: Callable[..., DatasetBatches]
    part: tuple[int, int]
    estimator: dict[str, Any]
    search: PTN
    seed: int
    cache: str | os.PathLike[str] | None
    bars: Progress

    def __post_init__(self) -> None:
        self.clock = Clock(placement(self.model)[0])

    def run(self) -> Found:
        """Importances, then the search; the model is used up."""
        with self.clock("known poison"), forked_rng(self.seed):
            classes, obeying = first_look(self.model, self._poison())
            before = agreed(obeying / len(self.known), self.clock.device)
        if before == 0:
            check_labels(fetch(self.plain_set, self.rest[:FEW])[1], classes)  # labels that begin with 1 look like this
            return Found(Outcome(status=Status.NOT_LEARNED, trace=[], chosen=None), before, None, {}, {})
        with self.clock("retain importances"):
            retain = self._cached(self.read(self.train_set, self.rest, part=self.part), "training set", classes)
        with self.clock("forget importances"):
            forget = self._estimate(self.read(self.train_set, self.known, part=self.part), "known poison", classes)
        with self.clock("search"), forked_rng(self.seed):
            call = partial(seen, self.model, list(self._poison()), self._watched())
            first = self._look(call())
            again = call if is_sharded(self.model) else recorded(call, self.clock.device)
            outcome = search(
                self.model,
                retain,
                forget,
                lambda: self._look(again()),
                before=first,
                share=len(self.known) / len(self.train_set),  # type: ignore[arg-type]
                settings=self.search,
            )
        return Found(outcome, before, first.trusted_accuracy, retain, forget)

    def _look(self, counts: Tensor) -> Look:
        """What the counts of :func:`seen` say."""
        known, probability, trusted = counts.tolist()
        known /= len(self.known)
        if not self.watched:
            return Look(agreed(known, self.clock.device))
        return Look(
            *(
                agreed(each, self.clock.device)
                for each in (known, trusted / len(self.watched), probability / len(self.known))
            )
        )

    def _watched(self) -> list[Batch]:
        return list(self.read(self.plain_set, self.watched, part=(0, 1))) if self.watched else []

    def _poison(self) -> DatasetBatches:
        """The known poison, each time the same; not kept on the device while importances need the room."""
        return self.read(self.plain_set, self.known, part=(0, 1))

    def _estimate(self, batches: DatasetBatches, what: str, classes: int) -> Importances:
        with forked_rng(self.seed):
            shown = self.bars.track(batches, f"importances of the {what}", len(batches))
            error: ValueError | None = None
            totals: Importances = {}
            terms = 0
            try:
                totals, terms = summed_importances(self.model, _labels_checked(shown, classes), **self.estimator)
            except ValueError as caught:
                error = caught
            failed_together(error, self.clock.device)
            if self.part[1] > 1:
                summed(totals.values())
                terms = summed_number(terms, self.clock.device)
            return averaged(self.model, totals, terms, self.estimator["kind"])

    def _cached(self, batches: DatasetBatches, what: str, classes: int) -> Importances:
        compute = partial(self._estimate, batches, what, classes)
        if self.cache is None or world().size > 1:  # each process would have to read all of the data for the key
            return compute()
        with forked_rng(self.seed):
            key = content_key(self.model, batches, device=str(self.clock.device), **self.estimator)
        return cached(self.cache, key, compute, self.model)


def _labels_checked(batches: Iterable[Batch], classes: int) -> Iterator[Batch]:
    """The batches; when all have passed, their labels are checked, which asks the device once and not for each batch."""
    ends: list[Tensor] = []
    for inputs, labels in batches:
        ends.append(torch.stack([labels.min(), labels.max()]))
        yield inputs, labels
    if ends:  # a process may have no batch at all
        check_labels(torch.cat(ends), classes)


@torch.no_grad()
def seen(model: nn.Module, poison: Sequence[Batch], trusted: Sequence[Batch] = ()) -> Tensor:
    """How much of the known poison gets its label, the attacker's; with trusted samples, its probability and their hits."""
    place = poison[0][0].device
    counts = torch.zeros(3, dtype=torch.float32 if place.type == "mps" else torch.float64, device=place)
    for inputs, labels in poison:
        outputs = logits(model, inputs)
        own = labels.to(outputs.device)
        counts[0] += (outputs.argmax(1) == own).sum().to(counts.device)
        if trusted:
            counts[1] += outputs.double().softmax(1).gather(1, own[:, None]).sum().to(counts.device)
    for inputs, labels in trusted:
        outputs = logits(model, inputs)
        counts[2] += (outputs.argmax(1) == labels.to(outputs.device)).sum().to(counts.device)
    return counts
