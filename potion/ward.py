"""The ward: a poisoned model, its data sorted into trusted, held out and quarantined, and what is asked of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import fetch
from potion.forward import logits
from potion.localise import Search, Surroundings, localise
from potion.margins import margins
from potion.medicine import Medicine, taught
from potion.runtime import generator_for, seed_for
from potion.trigger import DOMAINS, Trigger

__all__ = ["Antidote", "NothingFound", "Ward", "out_of_place"]


@dataclass(frozen=True, kw_only=True)
class Antidote:
    """Settings, the same for every attack: how long to teach, and how much of it is medicine.

    ``epochs`` are passes over the training set, of the quarantine and of each of the ``rounds`` of immunising;
    ``transplants`` is the share of images that get the trigger; ``admitted`` that of the quarantined samples that the
    first round takes back; ``held_out`` that of the trusted samples which are kept for judging. The trigger is sought in up
    to ``sources`` known samples, and in ``more`` of the others where fewer are known; masks are tried on ``pool`` images.
    """

    sources: int = 16
    more: int = 4
    pool: int = 1024
    held_out: float = 0.1
    transplants: float = 0.2
    admitted: float = 0.6
    quarantine_epochs: float = 1.5
    epochs: float = 4.0
    rounds: int = 2
    lr: float = 0.01
    search: Search = field(default_factory=Search)

    def __post_init__(self) -> None:
        for name in ("sources", "pool", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("quarantine_epochs", "epochs", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("held_out", "transplants", "admitted"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be a share between 0 and 1, got {getattr(self, name)}")


class NothingFound(Exception):  # noqa: N818 (nothing went wrong)
    """There is no sign of a trigger; the message says why."""


class Ward:
    """The patient, its data sorted into trusted, held out and quarantined, and what is asked of them again and again."""

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
    ) -> None:
        self.victim, self.train_set, self.plain_set, self.labels = victim, train_set, plain_set, labels
        self.settings, self.device, self.batch_size = settings, device, batch_size
        self.seed, self.progress = seed, progress
        claimed = torch.isin(labels, labels[list(known)])
        order = torch.randperm(len(labels), generator=generator_for("antidote", seed))
        trusted = order[~claimed[order]].tolist()
        if len(set(labels[trusted].tolist())) < 2:
            raise NothingFound(
                "the known poison claims all labels but one or none, so no samples are left that can be trusted"
            )
        judged = max(1, round(settings.held_out * len(trusted)))
        self.held_out, self.trusted = trusted[:judged], trusted[judged:]
        aside = set(known)
        self.quarantined = [index for index in torch.nonzero(claimed).flatten().tolist() if index not in aside]
        before, guesses = self.margins(victim, self.quarantined)
        self.obeying = guesses == self.claims(self.quarantined)
        self._before, self._held_before = before, self.margins(victim, self.held_out)[0]
        self._pool = fetch(plain_set, self.held_out[: settings.pool], device)[0]

    def claims(self, indices: Sequence[int]) -> Tensor:
        """The labels that samples have in the data."""
        return self.labels[list(indices)]

    def by(self, values: Tensor) -> list[int]:
        """The quarantined samples, from the lowest value up."""
        return self.named(values.argsort())

    def named(self, rows: Tensor) -> list[int]:
        """Rows or a mask of the quarantined samples as indices into the training set."""
        return torch.tensor(self.quarantined)[rows].tolist()

    def corrections(self, poison: Tensor, guesses: Tensor) -> dict[int, int]:
        """What belongs on samples whose label is wrong; those for which the guess is their label stay as they are."""
        wrong = poison & (guesses != self.claims(self.quarantined))
        return dict(zip(self.named(wrong), guesses[wrong].tolist(), strict=True))

    def localised(self, indices: Sequence[int], count: int, domains: Collection[str] = ()) -> list[Trigger]:
        """The triggers in the first ``count`` samples that fire, strongest first; in all domains or in some."""
        tried = list(indices)[: 4 * count]
        if not tried:
            return []
        _, guesses = self.margins(self.victim, tried)
        firing = [index for index, guess in zip(tried, guesses.tolist(), strict=True) if guess == self.labels[index]]
        firing = firing[:count]
        if not firing:
            return []
        sources, labels = fetch(self.plain_set, firing, self.device)
        around = Surroundings(
            trusted=self._pool, ordinary={label: self._ordinary(label) for label in set(labels.tolist())}
        )
        found = localise(
            self.victim,
            sources,
            labels.tolist(),
            around,
            self.settings.search,
            seed=seed_for("masks", self.seed),
            domains=domains or tuple(DOMAINS),
        )
        return sorted(found, key=lambda trigger: -trigger.strength)

    def _ordinary(self, label: int) -> Tensor:
        mine = [index for index in self.quarantined if self.labels[index] == label]
        return fetch(self.plain_set, mine[: self.settings.pool] or self.held_out[: self.settings.pool], self.device)[0]

    def taught(
        self, indices: list[int], corrected: dict[int, int], triggers: list[Trigger], epochs: float, purpose: str
    ) -> nn.Module:
        """A copy of the patient that has been told the truth."""
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
        )

    def margins(self, model: nn.Module, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """By how much samples' own labels win, and the classes that they are given."""
        return margins(model, self.plain_set, indices, 2 * self.batch_size)

    def verdict(self, healed: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
        """Of the quarantined samples: which are poison, which belong to their label, and the classes they are given.

        Poison obeyed before, does not now, and fell farther than 99.5 % of held-out trusted samples did.
        """
        now, guesses = self.margins(healed, self.quarantined)
        held, _ = self.margins(healed, self.held_out)
        limit = (self._held_before - held).quantile(0.995)
        own = self.claims(self.quarantined)
        poison = self.obeying & (guesses != own) & (self._before - now > limit)
        return poison, ~poison & (guesses == own), guesses

    def obedience(self, model: nn.Module, indices: Sequence[int]) -> float:
        """How many samples get the label in the data."""
        _, guesses = self.margins(model, indices)
        return float((guesses == self.claims(indices)).float().mean())

    @torch.no_grad()
    def obeys(self, model: nn.Module, triggers: Sequence[Trigger]) -> float:
        """How often held-out trusted images with a transplanted trigger get its target."""
        hits = [
            (logits(model, trigger.onto(some)).argmax(1) == trigger.target).float().mean()
            for trigger in triggers
            for some in self._pool[:256].split(self.batch_size)
        ]
        return float(torch.stack(hits).mean()) if hits else 0.0


def out_of_place(values: Tensor, labels: Tensor) -> Tensor:
    """Which samples lie farther below the middle of those with their label than any but 1 % lie above it.

    Clean samples spread to both sides alike, and poison is below; as long as it is less than half, the middle is clean.
    """
    flags = torch.zeros(len(values), dtype=torch.bool)
    for label in labels.unique():
        mine = labels == label
        middle, high = values[mine].quantile(torch.tensor([0.5, 0.99], dtype=values.dtype))
        flags[mine] = values[mine] < 2 * middle - high
    return flags
