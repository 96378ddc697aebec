"""Kin: who is like the known samples to the model, and who else falls when it is told the truth about them.

A second look, where no mask is a trigger: it asks nothing of what the trigger looks like. Poison lies close together where a
model makes up its mind (activation clustering; Chen et al., 2019), so the nearest neighbours of a known sample, among those
with its label, are mostly poison. The model is told that these few are something else, while it goes on learning the half of
the label that is least like them. If they have a trigger, others that have it fall, too, *whatever they show*. A lie about
ordinary samples is hard to learn, or takes along what looks like them.
"""

from __future__ import annotations

from collections.abc import Mapping
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
SHOWN: Final = 0.5
"""So much of a label goes on being learned: what is least like the known samples."""
FAR: Final = 1.5
"""Farther below the clean middle than so many times 99 % of the clean lie above it."""
COMPANY: Final = 8
"""So many others must fall: of fewer one cannot say how various they are."""
TOGETHER: Final = 0.5
"""So many of those about whom the truth was told must have fallen as far."""
VARIOUS: Final = 1.5
"""So many times as various as those that stay must be what falls."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What became of the known samples' kin in a lesson, and of others.

    The truth was told about ``told`` samples, of which the share ``together`` fell far. So did ``company`` others, which
    would belong to ``various`` times as many classes as those that stayed (:func:`effective`). ``members`` are all of them,
    with the classes that belong on them.
    """

    told: int
    together: float
    company: int
    various: float
    members: dict[int, int]

    @property
    def alike(self) -> bool:
        """Whether others fell with those about whom the truth was told."""
        return self.company >= COMPANY and self.together >= TOGETHER

    @property
    def convincing(self) -> bool:
        """Whether these have something in common that is not what they show."""
        return self.alike and self.various >= VARIOUS

    def explained(self) -> str:
        """Why it does not convince, in a few words."""
        if self.alike:
            return (
                f"{self.company} others fall with those that the model finds alike, but look alike as well ("
                f"{self.various:.1f} times as various as the rest, {VARIOUS} times would do)"
            )
        return (
            f"{self.company} others fall with those that the model finds alike ({COMPANY} would do) and "
            f"{self.together:.0%} of these themselves ({TOGETHER:.0%} would do)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "members": len(self.members)}


def family(ward: Ward, filtered: nn.Module) -> Family:
    """Look for kin of the known samples, tell a copy of the patient the truth about all of them, and see who falls.

    What the samples show is said by ``filtered``, which has learned from trusted samples alone: the best class but their
    label. Where those that fall look alike, the truth is told about these as well, once.
    """
    room = _Room(ward, filtered)
    first = room.nearest()
    found = room.lesson(first, first, "kin")
    if found.alike and not found.convincing:
        found = room.lesson(found.members, first, "more kin")
    return found


class _Room:
    """Everybody with an attacker's label, as the patient sees them, and how much they are like the known samples."""

    def __init__(self, ward: Ward, filtered: nn.Module) -> None:
        self.ward, self.indices = ward, [*ward.quarantined, *ward.known]
        self.labels = ward.claims(self.indices)
        seen, scores = self._seen(ward.victim)
        self.obeying, self.before = scores.argmax(1) == self.labels, lead(scores, self.labels)
        self.shows = runner_up(self._seen(filtered)[1], self.labels)
        self.known = torch.arange(len(self.indices)) >= len(ward.quarantined)
        self.alike = torch.zeros(len(self.indices), dtype=seen.dtype)
        for mine in self._by_label(self.known):
            self.alike[mine] = likeness(seen[mine], self.known[mine])

    def nearest(self) -> dict[int, int]:
        """The known samples, and the others most like them that obey; with what each shows."""
        told = self.known.clone()
        for mine in self._by_label(self.known):
            may = torch.nonzero(mine & self.obeying & ~self.known).flatten()
            told[may[self.alike[may].argsort(descending=True)[:KIN]]] = True
        return paired(self.indices, self.shows, told)

    def lesson(self, truth: Mapping[int, int], first: Mapping[int, int], purpose: str) -> Family:
        """Tell a copy of the patient the truth about some, and see who falls that it was not told about at ``first``."""
        told, begun = (torch.tensor([index in some for index in self.indices]) for some in (truth, first))
        shown = torch.zeros_like(told)
        for mine in self._by_label(told):
            rest = torch.nonzero(mine & ~told).flatten()
            shown[rest[self.alike[rest].argsort()[: int(SHOWN * len(rest))]]] = True
        taught = self.ward.taught(
            [*self.ward.trusted, *paired(self.indices, self.labels, shown)],
            dict(truth),
            [],
            self.ward.settings.quarantine_epochs,
            purpose,
        )
        rose = lead(self._seen(taught)[1], self.labels) - self.before
        judged, far = self.obeying & ~told & ~shown, torch.zeros_like(told)
        for mine in self._by_label(judged):
            middle, high = clean_middle(rose[mine & judged])
            far |= mine & self.obeying & (rose < middle - FAR * (high - middle))
        others, stayed = (judged | told & ~begun) & far, judged & ~far
        return Family(
            told=len(truth),
            together=int((told & far).sum()) / max(1, int((told & self.obeying).sum())),
            company=int(others.sum()),
            various=effective(self.shows[others]) / max(1.0, effective(self.shows[stayed])),
            members=paired(self.indices, self.shows, told | others),
        )

    def _by_label(self, some: Tensor) -> list[Tensor]:
        """For each label that some samples have, who has it."""
        return [self.labels == label for label in self.labels[some].unique()]

    def _seen(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        return features(model, self.ward.plain_set, self.indices, self.ward.batch_size)


def likeness(seen: Tensor, known: Tensor) -> Tensor:
    """How much the features of samples with one label point where those of a known one do: the largest cosine.

    They are taken from the middle of the label, in units of their spread.
    """
    away = (seen - seen.median(0).values) / seen.std(0, correction=0).clamp(min=1e-12)
    return torch.stack([cosine_similarity(away, one[None]) for one in away[known]]).amax(0)


def effective(classes: Tensor) -> float:
    """Of how many classes samples are, if each had as many: the exponential of the entropy; 0 of no samples."""
    if not len(classes):
        return 0.0
    shares = torch.bincount(classes).double() / len(classes)
    return float(torch.special.entr(shares).sum().exp())
