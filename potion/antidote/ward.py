"""The ward: a poisoned model, its data sorted into trusted, held out and quarantined, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote.admission import check_admission, takes_bfloat16
from potion.antidote.features import Spread, features
from potion.antidote.margins import margins, runner_up
from potion.antidote.medicine import Medicine, taught
from potion.antidote.settings import Antidote
from potion.antidote.trigger import Trigger
from potion.batches import Batch, fetch
from potion.forward import logits, placed
from potion.runtime import forked_rng, generator_for, seed_for

__all__ = ["NothingFound", "Ward", "attackers_labels", "paired"]

LEAST: Final = 20
"""Fewer trusted samples are not enough to search and teach on."""
HELD: Final = 64
"""So many trusted samples at least are held out, or a quarter of few: fewer do not tell what the trigger still does."""
JUDGED: Final = 256
"""On so many held-out samples at most, a quarter of few, is judged how well a trigger works; masks are sought on others."""
ORDINARY: Final = 2048
"""So many trusted samples say how ordinary ones differ."""
AGAIN: Final = 8
"""So often at most is a corrected sample shown in an epoch."""
MISTAKEN: Final = 0.2
"""A label that fewer known samples have than this share of the most common one's is not the attacker's."""


class NothingFound(Exception):  # noqa: N818 (nothing went wrong)
    """There is no sign of a trigger; the message says why."""


@dataclass(kw_only=True, eq=False, repr=False)
class Ward:
    """The patient, its data sorted into trusted, held out and quarantined, and what is asked of them again and again.

    ``listed`` samples are said to be poison; ``given`` are those of them that have an attacker's label: others were named by
    mistake. ``adopted`` samples join the known ones, or are among them and surely poison; they do not say which labels are
    the attacker's. ``usual`` is how many samples a trusted label has in the median, ``most`` how many the most common one
    has, ``commonest`` the share of all trusted samples that these are. ``pool`` are images to search on, of the first part
    of those held out; how well a trigger works is judged on the last ones.
    """

    victim: nn.Module
    train_set: Dataset[Any]
    plain_set: Dataset[Any]
    labels: Tensor
    listed: Sequence[int]
    device: torch.device
    batch_size: int
    settings: Antidote = field(default_factory=Antidote)
    seed: int = 0
    progress: bool = False
    workers: int = 0
    adopted: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.adopted = list(self.adopted)
        claimed = torch.isin(self.labels, attackers_labels(self.claims(self.listed)))
        order = torch.randperm(len(self.labels), generator=generator_for("antidote", self.seed))
        aside = {*self.listed, *self.adopted}
        trusted = [index for index in order[~claimed[order]].tolist() if index not in aside]
        if len(set(self.claims(trusted).tolist())) < 2:
            raise NothingFound(
                "the known poison claims all labels but one or none, so no samples are left that can be trusted"
            )
        if len(trusted) < LEAST:
            raise NothingFound(f"only {len(trusted)} samples can be trusted, too few to learn from")
        common = self.claims(trusted).unique(return_counts=True)[1]
        self.usual, self.most = int(common.double().median()), int(common.max())
        self.commonest = self.most / len(trusted)
        share = max(round(self.settings.held_out * len(trusted)), min(HELD, len(trusted) // 4))
        held = min(share, len(trusted) - LEAST // 2)
        self.held_out, self.trusted = trusted[:held], trusted[held:]
        self.given = [index for index in self.listed if claimed[index]]
        self.known = list(dict.fromkeys([*self.given, *self.adopted]))
        self.quarantined = [index for index in torch.nonzero(claimed).flatten().tolist() if index not in aside]
        judged = min(JUDGED, max(1, held // 4))
        self.pool = self.fetched(self.plain_set, self.held_out[:-judged][: self.settings.pool])[0]
        self._check()
        self.judging = self.fetched(self.plain_set, self.held_out[-judged:])[0]
        self.obeying = self.margins(self.victim, self.quarantined)[1] == self.claims(self.quarantined)

    @property
    def fewest(self) -> int:
        """How many known samples the attacker's label has that has fewest."""
        return int(self.claims(self.known).unique(return_counts=True)[1].min())

    def _check(self) -> None:
        """Refuse what it is not for, or does not fit the patient, before anything is computed with it; see how to ask it."""
        with forked_rng(self.seed):
            shown = self.fetched(self.train_set, self.trusted[:1])[0]
        check_admission(self.victim, self.pool, shown, self.labels)
        self.bfloat16 = takes_bfloat16(self.victim, self.pool[:2])

    @cached_property
    def sight(self) -> tuple[Tensor, Tensor]:
        """What the patient sees in all that have an attacker's label, the known ones last: features and scores."""
        return self.seen_by(self.victim, [*self.quarantined, *self.known])

    @cached_property
    def spread(self) -> Spread:
        """How trusted samples differ to the patient."""
        return Spread.of(self.seen_by(self.victim, self.trusted[:ORDINARY])[0])

    def seen_by(self, model: nn.Module, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Features and scores of samples."""
        return features(model, self.plain_set, indices, self.batch_size, self.workers)

    def claims(self, indices: Sequence[int]) -> Tensor:
        """The labels that samples have in the data."""
        return self.labels[list(indices)]

    def by(self, values: Tensor) -> list[int]:
        """The quarantined samples, from the lowest value up."""
        return self.named(values.argsort())

    def named(self, rows: Tensor) -> list[int]:
        """Rows or a mask of the quarantined samples as indices into the training set."""
        return torch.tensor(self.quarantined)[rows].tolist()

    def truth(self, model: nn.Module) -> dict[int, int]:
        """What belongs on the known samples, as ``model`` sees them.

        Those that keep their label are left out: they may be named by mistake. Adopted ones get the best other class then.
        """
        _, scores = self.seen_by(model, self.known)
        own, guesses = self.claims(self.known), scores.argmax(1)
        adopted = torch.isin(torch.tensor(self.known), torch.tensor(self.adopted, dtype=torch.long))
        classes = torch.where(adopted, runner_up(scores, own), guesses)
        return paired(self.known, classes, classes != own)

    def rejected(self, model: nn.Module, indices: Sequence[int]) -> dict[int, int]:
        """Samples that do not get their label, with the class that they get."""
        _, guesses = self.margins(model, indices)
        return paired(indices, guesses, guesses != self.claims(indices))

    def fetched(self, dataset: Dataset[Any], indices: Sequence[int]) -> Batch:
        """Samples on the device, as the patient wants them, also where a dataset has another type of floats."""
        inputs, labels = fetch(dataset, indices, self.device)
        return placed(self.victim, inputs), labels

    def taught(
        self, indices: list[int], corrected: dict[int, int], triggers: list[Trigger], epochs: float, purpose: str
    ) -> nn.Module:
        """A copy of the patient that has been told the truth, about corrected samples often enough to be heard."""
        times = round(self.settings.corrected * len(indices) / max(1, len(corrected)))
        indices = indices + list(corrected) * min(max(times, 1), AGAIN)
        seed = seed_for(purpose, self.seed) % 2**31
        medicine = Medicine(
            self.train_set, corrected, triggers, self.device, share=self.settings.transplants, seed=seed
        )
        return taught(
            self.victim,
            medicine,
            indices,
            epochs=epochs,
            batch_size=self.batch_size,
            lr=self.settings.lr,
            seed=seed,
            progress=self.progress,
            workers=self.workers,
            bfloat16=self.bfloat16,
        )

    def margins(self, model: nn.Module, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """By how much samples' own labels win, and the classes that they are given."""
        return margins(model, self.plain_set, indices, 2 * self.batch_size, self.workers)

    def examples(self, count: int) -> Tensor:
        """A few trusted images."""
        return self.pool[:count].clone()  # a view would keep the whole pool in memory

    def accuracy(self, model: nn.Module, indices: Sequence[int]) -> float:
        """The share of samples that get the label in the data."""
        _, guesses = self.margins(model, indices)
        return float((guesses == self.claims(indices)).double().mean())

    def obedience(self, model: nn.Module, indices: Sequence[int]) -> dict[int, float]:
        """The same for each label that they have in the data."""
        _, guesses = self.margins(model, indices)
        own = self.claims(indices)
        kept = (guesses == own).double()
        return {label: float(kept[own == label].mean()) for label in own.unique().tolist()}

    def keeping(self, model: nn.Module) -> dict[int, int]:
        """For each attacker's label, how many of all samples that have it in the data get it."""
        everybody = [*self.quarantined, *self.known]
        _, guesses = self.margins(model, everybody)
        own = self.claims(everybody)
        return {label: int(((own == label) & (guesses == label)).sum()) for label in own.unique().tolist()}

    @torch.no_grad()
    def obeys(self, model: nn.Module, triggers: Sequence[Trigger]) -> dict[int, float]:
        """For each target of some triggers, the share of held-out trusted images that get it with one of them on."""
        hits: dict[int, list[Tensor]] = {}
        for trigger in triggers:
            for some in self.judging.split(self.batch_size):
                said = logits(model, trigger.onto(some)).argmax(1)
                hits.setdefault(trigger.target, []).append(said == trigger.target)
        return {target: float(torch.cat(mine).double().mean()) for target, mine in hits.items()}


def paired(indices: Sequence[int], classes: Tensor, rows: Tensor) -> dict[int, int]:
    """Samples under a mask, with their classes."""
    return {indices[row]: int(classes[row]) for row in torch.nonzero(rows).flatten().tolist()}


def attackers_labels(claims: Tensor) -> Tensor:
    """The labels of known poison; not those that only a few have: they will be clean samples named by mistake."""
    labels, counts = claims.unique(return_counts=True)
    common: Tensor = labels[counts >= MISTAKEN * counts.max()]
    return common
