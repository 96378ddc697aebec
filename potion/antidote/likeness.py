"""Likeness: how much samples with an attacker's label are to the model what the known poison is to it.

Poison lies close together where a model makes up its mind (activation clustering; Chen et al., 2019), so the nearest
neighbours of a known sample, among those with its label, are mostly poison; the more so where it counts little in what
trusted samples differ. And what is least like the poison that is known is clean, as far as there is that much of it: poison
may be most of its label, but clean samples it will have as other labels do.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from potion.antidote.carriers import Carriers
from potion.antidote.features import Spread
from potion.antidote.margins import lead
from potion.antidote.outliers import clean_middle, farther_half
from potion.antidote.verdict import Verdict
from potion.antidote.ward import Ward

__all__ = ["Likened", "likeness", "resembling", "surely_clean"]

KIN: Final = 8
"""So many of the nearest neighbours are taken for kin."""
TWINS: Final = 2
"""So many of them may show the same class."""
TOGETHER: Final = 256
"""To so many known samples are all others compared at once."""
ENOUGH: Final = 32
"""So many known samples tell how much poison is like poison."""
ALIKE: Final = 0.9
"""So many of them must be more like the others than a clean sample can be."""
LEFT: Final = 0.02
"""So much of the poison may be less like the known than that is like itself."""
SHOWN: Final = 0.5
"""So much of a label, or of what another label has, goes on being learned in a lesson: what is least like poison."""


class Likened:
    """Everybody with an attacker's label, as the patient sees them, and how much they are like the known samples.

    ``poison`` are quarantined ones that are taken to be poison, too: to be like them counts as well.
    """

    def __init__(self, ward: Ward, poison: Tensor | None = None) -> None:
        self.ward, self.indices = ward, [*ward.quarantined, *ward.known]
        self.labels = ward.claims(self.indices)
        seen, scores = ward.sight
        self.obeying, self.before = scores.argmax(1) == self.labels, lead(scores, self.labels)
        self.known = torch.arange(len(self.indices)) >= len(ward.quarantined)
        of = self.known.clone()
        if poison is not None:
            of[: len(poison)] |= poison
        self.alike = torch.zeros(len(self.indices), dtype=seen.dtype)
        for mine in self.by_label(self.known):
            self.alike[mine] = likeness(seen[mine], of[mine], ward.spread, ward.usual)

    def nearest(self, shows: Tensor | None = None) -> Tensor:
        """The known samples, and of the others that obey those most like them; but few that show the same class, where it
        is said what they show.
        """
        told = self.known.clone()
        for mine in self.by_label(self.known):
            may = torch.nonzero(mine & self.obeying & ~self.known).flatten()
            nearest = may[self.alike[may].argsort(descending=True)]
            if shows is not None:
                classes = one_hot(shows[nearest])
                before = (classes.cumsum(0) - classes).gather(1, shows[nearest, None])[:, 0]
                nearest = nearest[before < TWINS]
            told[nearest[:KIN]] = True
        return told

    def farthest(self, told: Tensor) -> Tensor:
        """The part of the others that is least like the known samples."""
        shown = torch.zeros_like(told)
        for mine in self.by_label(told):
            shown[self.least(mine & ~told)] = True
        return shown

    def least(self, some: Tensor) -> Tensor:
        """The rows of those least like poison: half of some with one label, or half of what another label has."""
        rows = torch.nonzero(some).flatten()
        return rows[self.alike[rows].argsort()[: int(SHOWN * min(len(rows), self.ward.usual))]]

    def named(self, some: Tensor) -> list[int]:
        """Samples as indices into the training set."""
        return [index for index, flag in zip(self.indices, some.tolist(), strict=True) if flag]

    def seen_by(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Features and scores."""
        return self.ward.seen_by(model, self.indices)

    def by_label(self, some: Tensor) -> list[Tensor]:
        """For each label that some samples have, who has it."""
        return [self.labels == label for label in self.labels[some].unique()]


def surely_clean(ward: Ward, carriers: Carriers, verdict: Verdict | None = None) -> list[int]:
    """Half of each label, of those that carry nothing and are not named in a ``verdict``: what is least like poison.

    Poison is the known and the farther half of the named, which has hardly a clean sample in it: what is like a hard clean
    one that was named by mistake must be shown, or it is forgotten and named next.
    """
    count = len(ward.quarantined)
    named = clearly = torch.zeros(count, dtype=torch.bool)
    if verdict is not None:
        named = verdict.credible(carriers)
        clearly = farther_half(verdict.placed, verdict.own, named)
    room, may = Likened(ward, clearly), ~named & ~carriers.carries
    return [
        ward.quarantined[row] for mine in room.by_label(room.known) for row in room.least(mine[:count] & may).tolist()
    ]


def resembling(ward: Ward) -> Tensor:
    """Who of the quarantined is as much like known poison as that is like itself; everybody, where it does not tell.

    It tells where there is enough of it, and nearly all of it is more like the rest of it than clean samples can be. A hard
    clean sample is no more like poison than others are, however far a lesson has put it out of place.
    """
    may = torch.ones(len(ward.quarantined), dtype=torch.bool)
    indices, (seen, _) = [*ward.quarantined, *ward.known], ward.sight
    labels, given = ward.claims(indices), torch.isin(torch.tensor(indices), torch.tensor(ward.given))
    for label in labels[given].unique():
        mine = labels == label
        known = given[mine]
        if int(known.sum()) < ENOUGH or known.all():
            continue
        alike = likeness(seen[mine], known, ward.spread, ward.usual, beside=True)
        middle, low = (-value for value in clean_middle(-alike[~known]))
        if float((alike[known] > 2 * middle - low).double().mean()) >= ALIKE:
            may[mine[: len(may)]] = (alike >= alike[known].quantile(LEFT))[: int(mine[: len(may)].sum())]
    return may


def likeness(seen: Tensor, known: Tensor, spread: Spread, usual: int, *, beside: bool = False) -> Tensor:
    r"""How much the features of samples with one label point where those of a known one do: the largest cosine.

    They are taken from the middle of the label's clean samples, in units in which ordinary samples ``spread``: times
    :math:`(C + r I)^{-1/2}`, with C the covariance of these and r a share of their mean variance. What sets ordinary samples
    apart from each other, above all what they show, counts less. Clean, to find their middle, are as many as other labels
    have (``usual``): what points least where a known one does from the middle of the ordinary ones. From there it is no good
    for more than that, because all samples with one label point the same way. ``beside`` compares the known ones with each
    other instead of with themselves.
    """
    rows = torch.nonzero(known).flatten().split(TOGETHER)

    def alike(middle: Tensor) -> Tensor:
        away = normalize(spread.in_units(seen - middle), eps=1e-8)
        most = away.new_full((len(away),), -1.0)
        for some in rows:
            cosines = away @ away[some].T
            if beside:
                cosines[some, torch.arange(len(some))] = -1.0
            most = torch.maximum(most, cosines.amax(1))
        return most

    clean = alike(spread.middle).argsort()[:usual]
    return alike(seen[clean].median(0).values)
