"""The ward: a poisoned model, its data sorted into trusted, held out and quarantined, and what is asked of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote_settings import Antidote
from potion.batches import Batch, fetch
from potion.features import features
from potion.forward import first_logits, logits, placed, placement, told
from potion.localise import Surroundings, cut_anew, localise
from potion.margins import margins, runner_up
from potion.medicine import Medicine, taught
from potion.pattern import pattern
from potion.runtime import forked_rng, generator_for, seed_for
from potion.trigger import SOUGHT, Trigger
from potion.validation import check_labels, check_logits

__all__ = ["NothingFound", "Ward", "attackers_labels", "paired"]

VIEWS: Final = 8
"""So many times is a sample looked at as training shows it, where it does not fire as it is."""
LEAST: Final = 20
"""Fewer trusted samples are not enough to search and teach on."""
AVERAGED: Final = 4096
"""So many trusted samples say what images look like without a trigger."""
JUDGED: Final = 256
"""On so many held-out samples at most, a quarter of few, is judged how well a trigger works; masks are sought on others."""
ORDINARY: Final = 16
"""Fewer ordinary images of a label do not show what its images have in common: trusted ones fill up."""
AGAIN: Final = 8
"""So often at most is a corrected sample shown in an epoch."""
MISTAKEN: Final = 0.2
"""A label that fewer known samples have than this share of the most common one's is not the attacker's."""


class NothingFound(Exception):  # noqa: N818 (nothing went wrong)
    """There is no sign of a trigger; the message says why."""


class Ward:
    """The patient, its data sorted into trusted, held out and quarantined, and what is asked of them again and again.

    ``adopted`` samples join the known ones, or are among them and surely poison; they do not say which labels are the
    attacker's. ``given`` are the known samples that have these labels: others were named by mistake. ``usual`` is how many
    samples a trusted label has in the median, ``most`` how many the most common one has, ``commonest`` the share of all
    trusted samples that these are.
    """

    def __init__(
        self,
        victim: nn.Module,
        train_set: Dataset[Any],
        plain_set: Dataset[Any],
        labels: Tensor,
        known: Sequence[int],
        settings: Antidote,
        device: torch.device,
        batch_size: int,
        seed: int,
        progress: bool,
        adopted: Sequence[int] = (),
        workers: int = 0,
    ) -> None:
        self.victim, self.train_set, self.plain_set, self.labels = victim, train_set, plain_set, labels
        self.settings, self.device, self.batch_size = settings, device, batch_size
        self.seed, self.progress, self.workers = seed, progress, workers
        claimed = torch.isin(labels, attackers_labels(labels[list(known)]))
        order = torch.randperm(len(labels), generator=generator_for("antidote", seed))
        aside = {*known, *adopted}
        trusted = [index for index in order[~claimed[order]].tolist() if index not in aside]
        if len(set(labels[trusted].tolist())) < 2:
            raise NothingFound(
                "the known poison claims all labels but one or none, so no samples are left that can be trusted"
            )
        if len(trusted) < LEAST:
            raise NothingFound(f"only {len(trusted)} samples can be trusted, too few to learn from")
        common = labels[trusted].unique(return_counts=True)[1]
        self.usual, self.most = int(common.double().median()), int(common.max())
        self.commonest = self.most / len(trusted)
        judged = max(2, round(settings.held_out * len(trusted)))
        self.held_out, self.trusted = trusted[:judged], trusted[judged:]
        self.given = [index for index in known if claimed[index]]
        self.known, self.adopted = list(dict.fromkeys([*self.given, *adopted])), list(adopted)
        self.quarantined = [index for index in torch.nonzero(claimed).flatten().tolist() if index not in aside]
        judging = min(JUDGED, max(1, len(self.held_out) // 4))
        self._pool = self._fetched(plain_set, self.held_out[:-judging][: settings.pool])[0]
        self._check()
        self._judging = self._fetched(plain_set, self.held_out[-judging:])[0]
        self._search = replace(
            settings.search, at_once=min(settings.search.at_once, max(settings.search.images, 2 * batch_size))
        )
        self.obeying = self.margins(victim, self.quarantined)[1] == self.claims(self.quarantined)

    @property
    def fewest(self) -> int:
        """How many known samples the attacker's label has that has fewest."""
        return int(self.claims(self.known).unique(return_counts=True)[1].min())

    @torch.no_grad()
    def _check(self) -> None:
        """Refuse what it is not for, or does not fit the patient, before anything is computed with it."""
        if len({p.device for p in self.victim.parameters()}) > 1:
            raise ValueError(
                "the antidote teaches on one device, but the model is spread over several: take another method"
            )
        if self._pool.dim() != 4:
            shape = tuple(self._pool.shape[1:])
            raise ValueError(f"the antidote is for images (C, H, W), but the samples are {shape}: take another method")
        if not self._pool.is_floating_point():
            raise ValueError(f"train_set yields {told(self._pool.dtype)}: give the antidote images as floats")
        if not self._pool.isfinite().all():
            raise ValueError("train_set holds images with NaN or inf")
        with forked_rng(self.seed):
            shown = self._fetched(self.train_set, self.trusted[:1])[0]
        if shown.shape[1:] != self._pool.shape[1:]:
            sizes = [tuple(each.shape[1:]) for each in (shown, self._pool)]
            raise ValueError(
                f"train_set yields images {sizes[0]}, unaugmented {sizes[1]}: what the antidote finds in one is put onto "
                "the other, so give both one size"
            )
        others = [told(dtype) for dtype, count in placement(self.victim)[1].items() if count and dtype != torch.float32]
        if others:
            raise ValueError(
                f"the antidote teaches in float32, but the model has {others[0]} weights: give it model.float()"
            )
        outputs = first_logits(self.victim, self._pool[:2])
        check_logits(outputs)
        check_labels(self.labels, outputs.shape[1])

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
        _, scores = features(model, self.plain_set, self.known, 2 * self.batch_size, self.workers)
        own, guesses = self.claims(self.known), scores.argmax(1)
        adopted = torch.isin(torch.tensor(self.known), torch.tensor(self.adopted, dtype=torch.long))
        classes = torch.where(adopted, runner_up(scores, own), guesses)
        return paired(self.known, classes, classes != own)

    def rejected(self, model: nn.Module, indices: Sequence[int]) -> dict[int, int]:
        """Samples that do not get their label, with the class that they get."""
        _, guesses = self.margins(model, indices)
        return paired(indices, guesses, guesses != self.claims(indices))

    def localised(self, indices: Sequence[int], count: int, domains: Sequence[str] = ()) -> list[Trigger]:
        """The triggers in the first ``count`` samples that fire, as many of each label; strongest first.

        In all domains or in some.
        """
        if not len(indices):
            return []
        by_label = [
            [index for index in indices if self.labels[index] == label] for label in self.claims(indices).unique()
        ]
        each = math.ceil(count / len(by_label))
        sources, labels = map(torch.cat, zip(*(self._firing(some[: 4 * each], each) for some in by_label), strict=True))
        found = localise(
            self.victim,
            sources,
            labels.tolist(),
            self._around(labels.tolist(), self.quarantined),
            self._search,
            seed=seed_for("masks", self.seed),
            domains=domains or SOUGHT,
        )
        return sorted(found, key=lambda trigger: -trigger.strength)

    def looked_again(self, triggers: Sequence[Trigger], poison: Tensor) -> list[Trigger]:
        """The triggers next to samples with their label that are clean, as far as that is known by now; strongest first."""
        around = self._around([trigger.target for trigger in triggers], self.named(~poison))
        found = cut_anew(self.victim, triggers, around, self._search, seed=seed_for("cuts", self.seed))
        return sorted(found, key=lambda trigger: -trigger.strength)

    def patterns(self, corrected: Mapping[int, int]) -> list[Trigger]:
        """What the poison of each label adds to images on average, where that makes the patient obey."""
        found = []
        for label in self.claims(list(corrected)).unique().tolist():
            mine = {index: guess for index, guess in corrected.items() if self.labels[index] == label}
            found.append(
                pattern(
                    self.victim, self.plain_set, mine, label, self.held_out[:AVERAGED], self.labels, self._pool[:256],
                    batch_size=self.batch_size, workers=self.workers,
                )
            )  # fmt: skip
        return [each for each in found if each is not None]

    @torch.no_grad()
    def _firing(self, indices: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
        """Views of samples in which the patient obeys: as they are, or as training shows them; of none, as they are."""
        views: list[Tensor] = []
        labels: list[Tensor] = []
        waiting = list(indices)
        for dataset in (self.plain_set, *[self.train_set] * VIEWS):
            if not waiting or len(views) >= count:
                break
            seen, own = self._fetched(dataset, waiting)
            fires = logits(self.victim, seen).argmax(1) == own
            views += seen[fires].unbind()
            labels += own[fires].unbind()
            waiting = [index for index, fired in zip(waiting, fires.tolist(), strict=True) if not fired]
        if not views:
            return self._fetched(self.plain_set, list(indices)[:count])
        return torch.stack(views[:count]), torch.stack(labels[:count])

    def _around(self, labels: Collection[int], among: Sequence[int]) -> Surroundings:
        """Images to try triggers for ``labels`` on, with ordinary ones ``among`` some, filled up with trusted ones."""
        ordinary = {}
        for label in set(labels):
            mine = [index for index in among if self.labels[index] == label][: self.settings.pool]
            mine += self.held_out[: max(0, ORDINARY - len(mine))]
            ordinary[label] = self._fetched(self.plain_set, mine)[0]
        return Surroundings(trusted=self._pool, ordinary=ordinary)

    def _fetched(self, dataset: Dataset[Any], indices: Sequence[int]) -> Batch:
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
        )

    def margins(self, model: nn.Module, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """By how much samples' own labels win, and the classes that they are given."""
        return margins(model, self.plain_set, indices, 2 * self.batch_size, self.workers)

    def examples(self, count: int) -> Tensor:
        """A few trusted images."""
        return self._pool[:count].clone()  # a view would keep the whole pool in memory

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
            for some in self._judging.split(self.batch_size):
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
