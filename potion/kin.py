"""Kin: who is like the known samples to the model, and who else falls when it is told the truth about them.

A second look, where no mask is a trigger: it asks nothing of what the trigger looks like. Poison lies close together where a
model makes up its mind (activation clustering; Chen et al., 2019), so the nearest neighbours of a known sample, among those
with its label, are mostly poison; the more so where it counts little in what trusted samples differ. The model is told that
these few are something else, while it goes on learning the half of the label that is least like them. If they have a
trigger, others that have it turn, too, *whatever they show*, to all the classes that there are. A lie about ordinary samples
is hard to learn, or takes along what looks like them, to the few classes that such samples are taken for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from potion.features import features
from potion.margins import lead, runner_up
from potion.outliers import clean_middle
from potion.ward import Ward, paired

__all__ = ["Family", "effective", "family", "likeness"]

KIN: Final = 8
"""So many of the nearest neighbours are taken for kin."""
ORDINARY: Final = 2048
"""So many trusted samples say how ordinary ones differ."""
RIDGE: Final = 0.3
"""So many times their mean is added to all variances: what ordinary samples hardly vary in must not decide alone."""
SHOWN: Final = 0.5
"""So much of a label goes on being learned: what is least like the known samples."""
FAR: Final = 1.5
"""Farther below the clean middle than so many times 99 % of the clean lie above it."""
COMPANY: Final = 10
"""So many others must turn to another class: of fewer one cannot say how various they are."""
TOGETHER: Final = 0.5
"""So many of those about whom the truth was told must have fallen as far."""
TURNED: Final = 1 / 3
"""So many of the others that fall far must turn."""
VARIOUS: Final = 0.4
"""So many of the classes that it could be of must be what turns."""
CLASSES: Final = 9
"""It could be of as many as trusted samples have, or as there are of it; but of less than nine one could not tell."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What became of the known samples' kin in a lesson, and of others.

    The truth was told about ``told`` samples, of which the share ``together`` fell far. Of the others that did, the share
    ``turned`` is now given another class; these are the ``company``, and they are given the share ``various`` of the classes
    that they could be of (:func:`effective`). ``members`` are those told about and the company.
    """

    told: int
    together: float
    company: int
    turned: float
    various: float
    members: list[int]

    @property
    def convincing(self) -> bool:
        """Whether these have something in common that is not what they show."""
        return self._alike and self.turned >= TURNED and self.various >= VARIOUS

    @property
    def _alike(self) -> bool:
        return self.company >= COMPANY and self.together >= TOGETHER

    def explained(self) -> str:
        """Why it does not convince, in a few words."""
        if self._alike:
            return (
                f"{self.company} others turn to another class with those that the model finds alike, but they look alike as "
                f"well (they are given {self.various:.0%} of the classes, {VARIOUS:.0%} would do), or are few of those that "
                f"fall ({self.turned:.0%}, {TURNED:.0%} would do)"
            )
        return (
            f"{self.company} others turn to another class with those that the model finds alike ({COMPANY} would do) and "
            f"{self.together:.0%} of these themselves fall ({TOGETHER:.0%} would do)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "members": len(self.members)}


def family(ward: Ward, filtered: nn.Module) -> Family:
    """Look for kin of the known samples, tell a copy of the patient the truth about all of them, and see who falls.

    The truth is what ``filtered`` says, which has learned from trusted samples alone: the best class but their label.
    """
    room = _Room(ward)
    told = room.nearest()
    shown = room.farthest(told)
    shows = runner_up(room.seen_by(filtered)[1], room.labels)
    taught = ward.taught(
        [*ward.trusted, *room.named(shown)],
        paired(room.indices, shows, told),
        [],
        ward.settings.quarantine_epochs,
        "kin",
    )
    scores = room.seen_by(taught)[1]
    judged = room.obeying & ~told & ~shown
    far = room.fallen(lead(scores, room.labels), judged)
    given = scores.argmax(1)
    company = judged & far & (given != room.labels)
    count = int(company.sum())
    return Family(
        told=int(told.sum()),
        together=int((told & far).sum()) / max(1, int((told & room.obeying).sum())),
        company=count,
        turned=count / max(1, int((judged & far).sum())),
        various=effective(given[company]) / max(CLASSES, min(effective(ward.claims(ward.trusted)), count)),
        members=room.named(told | company),
    )


class _Room:
    """Everybody with an attacker's label, as the patient sees them, and how much they are like the known samples."""

    def __init__(self, ward: Ward) -> None:
        self.ward, self.indices = ward, [*ward.quarantined, *ward.known]
        self.labels = ward.claims(self.indices)
        seen, scores = self.seen_by(ward.victim)
        ordinary, _ = features(ward.victim, ward.plain_set, ward.trusted[:ORDINARY], ward.batch_size)
        self.obeying, self.before = scores.argmax(1) == self.labels, lead(scores, self.labels)
        self.known = torch.arange(len(self.indices)) >= len(ward.quarantined)
        self.alike = torch.zeros(len(self.indices), dtype=seen.dtype)
        for mine in self._by_label(self.known):
            self.alike[mine] = likeness(seen[mine], self.known[mine], ordinary)

    def nearest(self) -> Tensor:
        """The known samples, and the others most like them that obey."""
        told = self.known.clone()
        for mine in self._by_label(self.known):
            may = torch.nonzero(mine & self.obeying & ~self.known).flatten()
            told[may[self.alike[may].argsort(descending=True)[:KIN]]] = True
        return told

    def farthest(self, told: Tensor) -> Tensor:
        """The part of the others that is least like the known samples."""
        shown = torch.zeros_like(told)
        for mine in self._by_label(told):
            rest = torch.nonzero(mine & ~told).flatten()
            shown[rest[self.alike[rest].argsort()[: int(SHOWN * len(rest))]]] = True
        return shown

    def fallen(self, after: Tensor, judged: Tensor) -> Tensor:
        """Who obeyed and has lost far more of the lead of its label than clean samples do; these are among the judged."""
        rose, far = after - self.before, torch.zeros_like(judged)
        for mine in self._by_label(judged):
            middle, high = clean_middle(rose[mine & judged])
            far |= mine & self.obeying & (rose < middle - FAR * (high - middle))
        return far

    def named(self, some: Tensor) -> list[int]:
        """Samples as indices into the training set."""
        return [index for index, flag in zip(self.indices, some.tolist(), strict=True) if flag]

    def seen_by(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Features and scores."""
        return features(model, self.ward.plain_set, self.indices, self.ward.batch_size)

    def _by_label(self, some: Tensor) -> list[Tensor]:
        """For each label that some samples have, who has it."""
        return [self.labels == label for label in self.labels[some].unique()]


def likeness(seen: Tensor, known: Tensor, ordinary: Tensor) -> Tensor:
    r"""How much the features of samples with one label point where those of a known one do: the largest cosine.

    They are taken from the middle of the label, in units in which ``ordinary`` samples differ: times
    :math:`(C + r I)^{-1/2}`, with C the covariance of these and r a share of their mean variance. What sets ordinary samples
    apart from each other, above all what they show, counts less.
    """
    away = seen - seen.median(0).values
    _, spread, axes = torch.linalg.svd((ordinary - ordinary.mean(0)) / len(ordinary) ** 0.5, full_matrices=False)
    variance = spread.square()
    least = (RIDGE * variance.sum() / seen.shape[1]).clamp(min=1e-12)
    away = away - (away @ axes.T * (1 - (least / (variance + least)).sqrt())) @ axes
    return torch.stack([cosine_similarity(away, one[None]) for one in away[known]]).amax(0)


def effective(classes: Tensor) -> float:
    """Of how many classes samples are, if each had as many: the exponential of the entropy; 0 of no samples.

    Few samples show too few classes, for which the entropy is corrected (Miller and Madow, 1955).
    """
    if not len(classes):
        return 0.0
    counts = torch.bincount(classes)
    shares = counts.double() / len(classes)
    missed = (int((counts > 0).sum()) - 1) / (2 * len(classes))
    return float((torch.special.entr(shares).sum() + missed).exp())
