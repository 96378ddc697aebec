"""Which other training samples are poison: everything with an attacker's label, ranked by how sure we are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import fetch, labels_of
from potion.distributed import is_sharded
from potion.forward import logits, placement
from potion.margins import margins
from potion.result import HealResult
from potion.runtime import forked_rng, generator_for
from potion.trigger import DOMAINS, Trigger
from potion.types import Status
from potion.working import working_copy

__all__ = ["Suspect", "Suspects", "discover"]

MISTAKES: Final = 0.002
"""So many of the clean samples may be called poison."""
TRUSTED: Final = 2048
"""So many trusted samples say what clean ones look like."""
TRIED: Final = 6
"""On so many images the part of a sample that may be a trigger is tried."""
PLACES: Final = 2
"""So many of the triggers that were found are looked for, where they are and mirrored."""
COMPARED: Final = 512
"""So many trusted samples say how often that works without a trigger."""
DOUBT: Final = 10
"""So many times more often is a sample clean in which a trigger that we know was not found."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A sample with an attacker's label.

    ``score`` is 1 minus the share of clean samples that look as suspicious; ``believed`` the class that the healed model
    gives it; ``fell`` by how much its label lost in the repair (logits); ``fires`` how often its part under the trigger's
    mask works on other images, where a trigger is known.
    """

    index: int
    label: int
    believed: int
    score: float
    fell: float
    fires: float | None


@dataclass(frozen=True, kw_only=True)
class Suspects(Sequence[Suspect]):
    """All suspects, the surest first; the first ``cut`` of them are taken to be poison."""

    ranked: list[Suspect]
    cut: int

    @property
    def poison(self) -> list[int]:
        """The indices of the samples that are taken to be poison."""
        return [suspect.index for suspect in self.ranked[: self.cut]]

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
) -> Suspects:
    """Rank the training samples that have the label of known poison, by how sure we are that they are poison too.

    Two things speak for it. The poisoned ``model`` obeys and the healed one does not: the label lost more in the repair
    than trusted samples' labels did. And, where the antidote has localised the trigger, the same part of the sample, put
    onto other images, makes the poisoned model obey: that also finds poison whose label happens to be right. How often
    either is seen on trusted samples, which are clean, calibrates the cut: two in a thousand clean samples may pass it.
    The known samples themselves are left out.
    """
    if result.status is not Status.HEALED:
        raise ValueError(f"discover compares a poisoned with a healed model, but the result is {result.status.value!r}")
    if is_sharded(model):
        raise ValueError("discover needs the whole model in one process")
    victim, healed = working_copy(model, device), working_copy(result.model, device)
    plain_set = train_set if unaugmented is None else unaugmented
    labels = labels_of(train_set)
    claimed = torch.isin(labels, labels[result.known_poison])
    aside = set(result.known_poison)
    suspects = [index for index in torch.nonzero(claimed).flatten().tolist() if index not in aside]
    order = torch.randperm(len(labels), generator=generator_for("discover", seed))
    trusted = order[~claimed[order]][:TRUSTED].tolist()
    if not suspects or not trusted:
        return Suspects(ranked=[], cut=0)
    with forked_rng(seed):
        fell, obeyed, believed = _fell(victim, healed, plain_set, suspects, batch_size)
        usual, _, _ = _fell(victim, healed, plain_set, trusted, batch_size)
        moved = obeyed & (believed != labels[suspects])
        chance = torch.where(moved, _chance(fell, usual), 1.0)
        fires = None
        if result.treatment is not None and result.treatment.localised:
            look = _Look(victim, plain_set, trusted[:TRIED], result.treatment.triggers[:PLACES], batch_size)
            fires, null = look.fires(suspects), look.fires(trusted[TRIED : TRIED + COMPARED])
            seen = torch.where(fires >= 0.5, _chance(fires, null), 1.0)
            chance = torch.minimum(seen, (DOUBT * chance).clamp(max=1))
    evidence = fell / usual.std().clamp(min=1e-9) + (0 if fires is None else 10 * fires)
    ranking = sorted(range(len(suspects)), key=lambda row: (float(chance[row]), -float(evidence[row])))
    ranked = [
        Suspect(
            index=suspects[row],
            label=int(labels[suspects[row]]),
            believed=int(believed[row]),
            score=1 - float(chance[row]),
            fell=float(fell[row]),
            fires=None if fires is None else float(fires[row]),
        )
        for row in ranking
    ]
    return Suspects(ranked=ranked, cut=int((chance <= MISTAKES).sum()))


def _fell(
    victim: nn.Module, healed: nn.Module, dataset: Dataset[Any], indices: Sequence[int], batch_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """By how much samples' labels lost in the repair, whether they had won before, and the classes given now."""
    before, _ = margins(victim, dataset, indices, batch_size)
    after, believed = margins(healed, dataset, indices, batch_size)
    return before - after, before > 0, believed


def _chance(values: Tensor, null: Tensor) -> Tensor:
    """How often clean samples reach such a value; never nothing, there are only so many to compare with."""
    ordered = null.sort().values
    return (1 + len(ordered) - torch.searchsorted(ordered, values)) / (1 + len(ordered))


class _Look:
    """Does the part of a sample under a trigger's mask work as a trigger?"""

    def __init__(
        self, victim: nn.Module, dataset: Dataset[Any], trusted: list[int], triggers: list[Trigger], batch_size: int
    ) -> None:
        self.victim, self.dataset = victim, dataset
        self.triggers = [mirrored for trigger in triggers for mirrored in trigger.mirrored()]
        self.device = placement(victim)[0]
        self.images = fetch(dataset, trusted, self.device)[0]
        self.batch = max(1, batch_size // len(self.images))

    @torch.no_grad()
    def fires(self, indices: Sequence[int]) -> Tensor:
        """The share of images on which the samples' parts work, at the best of the places."""
        shares = []
        for begin in range(0, len(indices), self.batch):
            samples = fetch(self.dataset, indices[begin : begin + self.batch], self.device)[0]
            shares.append(torch.stack([self._works(samples, trigger) for trigger in self.triggers]).amax(0).cpu())
        return torch.cat(shares).double()

    def _works(self, samples: Tensor, trigger: Trigger) -> Tensor:
        mask = trigger.mask.to(samples)
        each, images = samples.repeat_interleave(len(self.images), 0), self.images.repeat(len(samples), 1, 1, 1)
        shown = DOMAINS[trigger.domain].mixed(images, each, mask).clamp(*trigger.limits)
        return (logits(self.victim, shown).argmax(1) == trigger.target).view(len(samples), -1).float().mean(1)
