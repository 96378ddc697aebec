"""The verdict: what a model that was told the truth says of the quarantined samples, and what follows for each of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor, nn

from potion.antidote.carriers import MIXED, ORDINARY, Carriers, steadiness
from potion.antidote.outliers import better_half, farther_half, out_of_place
from potion.antidote.ward import Ward, paired

__all__ = ["Verdict", "carriers_in"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdict:
    """``placed`` is by how much the labels of the quarantined samples win, ``guesses`` are their classes, ``poison`` is who
    obeyed before, is out of place now among the samples with its label, and is given another class.

    ``shown`` are those that the model has been shown with their labels because they are hardly poison: it cannot judge them.
    """

    ward: Ward
    placed: Tensor
    guesses: Tensor
    poison: Tensor
    shown: Tensor

    @classmethod
    def by(cls, model: nn.Module, ward: Ward, shown: Collection[int] = ()) -> Verdict:
        """What ``model`` says, which has been ``shown`` some samples with their labels."""
        placed, guesses = ward.margins(model, ward.quarantined)
        own = ward.claims(ward.quarantined)
        seen = torch.isin(torch.tensor(ward.quarantined), torch.tensor(list(shown), dtype=torch.long))
        poison = out_of_place(placed, own) & ward.obeying & (guesses != own) & ~seen
        return cls(ward=ward, placed=placed, guesses=guesses, poison=poison, shown=seen)

    @property
    def own(self) -> Tensor:
        """The labels that the quarantined samples have in the data."""
        return self.ward.claims(self.ward.quarantined)

    def credible(self, carriers: Carriers) -> Tensor:
        """The poison that mixtures do not speak against."""
        return self.poison & carriers.may

    def named(self, carriers: Carriers) -> dict[int, int]:
        """All that is poison, with the classes that belong on it."""
        return self._corrections(self.credible(carriers))

    def taught(self, carriers: Carriers) -> dict[int, int]:
        """The poison that the truth is told about next: what is clearly poison."""
        return self._corrections(self.clearest(carriers))

    def clearest(self, carriers: Carriers) -> Tensor:
        """Who of the poison is told the truth about: where there are carriers, these and the half farthest out of place.

        A hard clean sample that is taught as poison takes others like it along, and the next verdict finds all of them out
        of place. They are in the nearer half. Poison that is left out this time will be in the farther one the next time.
        Labels without carriers cannot spare a half: the nearer one may be all there is of another place of the trigger.
        """
        poison = self.credible(carriers)
        told = torch.isin(self.own, self.own[carriers.carries].unique())
        return poison & (~told | carriers.carries | farther_half(self.placed, self.own, poison))

    def suspicious(self, carriers: Carriers, corrected: Collection[int]) -> list[int]:
        """Where to look for more of the trigger: by turns in the corrected, lowest first, and in carriers, steadiest first.

        The corrected are those that one shape and place of the trigger has led to; carriers may have any.
        """
        carrying = set(self.ward.named(carriers.carries))
        lowest = [index for index in self.ward.by(self.placed) if index in corrected]
        steadiest = [index for index in self.ward.by(-carriers.steady) if index in carrying]
        by_turns = [index for pair in zip_longest(lowest, steadiest) for index in pair if index is not None]
        return list(dict.fromkeys(by_turns))

    def better(self, carriers: Carriers) -> list[int]:
        """The quarantined samples that were shown, and of the others those above the clean middle; without carriers."""
        rest = ~carriers.carries
        flags = self.shown & rest
        flags[rest] |= better_half(self.placed[rest], self.own[rest])
        return self.ward.named(flags)

    def taken_back(self, carriers: Carriers) -> list[int]:
        """The quarantined samples that get their label; without carriers."""
        return self.ward.named((self.guesses == self.own) & ~carriers.carries)

    def _corrections(self, some: Tensor) -> dict[int, int]:
        return paired(self.ward.quarantined, self.guesses, some)


def carriers_in(ward: Ward, poison: Tensor) -> Carriers:
    """Who of the quarantined samples carries a trigger, as the patient sees them mixed with trusted images.

    ``poison`` are those that a first lesson has put out of place; with the known ones they tell whether mixtures do.
    """
    count = len(ward.quarantined)
    if not ward.settings.carriers:
        return Carriers.nobody(torch.zeros(count, dtype=torch.float64))
    suspects, trusted = [*ward.quarantined, *ward.known], ward.held_out[MIXED : MIXED + ORDINARY]
    steady, ordinary = (
        steadiness(ward.victim, ward.plain_set, some, ward.examples(MIXED), ward.batch_size, ward.workers)
        for some in (suspects, trusted)
    )
    sure = torch.cat([poison, torch.ones(len(ward.known), dtype=torch.bool)])
    found = Carriers.among(steady, ward.claims(suspects), sure, ordinary)
    return Carriers(steady=steady[:count], carries=found.carries[:count], may=found.may[:count])
