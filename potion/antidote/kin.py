"""Kin: who is like the known samples to the model, and who else falls when it is told the truth about them.

A second look, where no mask is a trigger: it asks nothing of what the trigger looks like. The nearest neighbours of a known
sample are mostly poison (:mod:`~potion.antidote.likeness`). The model is told that these few are something else, while it
goes on learning the half of the label that is least like them. If they have a trigger, others that have it turn, too,
*whatever they show*, to all the classes that there are. A lie about ordinary samples is hard to learn, or takes along what
looks like them, to the few classes that such samples are taken for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from potion.antidote.likeness import Likened
from potion.antidote.margins import lead, runner_up
from potion.antidote.outliers import clean_middle
from potion.antidote.ward import Ward, paired

__all__ = ["Family", "effective", "family", "lesson_about"]

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
        return self._turning and self.various >= VARIOUS

    @property
    def one_sided(self) -> bool:
        """Whether it would be convincing, if what turned were more various."""
        return self._turning and self.various < VARIOUS

    @property
    def _turning(self) -> bool:
        return self._alike and self.turned >= TURNED

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

    The truth is what ``filtered`` says, which has learned from trusted samples alone: the best class but their label. Where
    most of the kin show one class, the lesson may have taught that the trigger means this class. So where others turn, but
    not to various classes, the nearest that show different ones are told about instead, if that convinces.
    """
    room = Likened(ward)
    shows = runner_up(room.seen_by(filtered)[1], room.labels)
    found = lesson_about(room, room.nearest(), shows)
    if not found.one_sided:
        return found
    again = lesson_about(room, room.nearest(shows), shows)
    return again if again.convincing else found


def lesson_about(room: Likened, told: Tensor, shows: Tensor) -> Family:
    """What becomes of the others in a lesson that says of the ``told`` what they show, and shows who is least like them."""
    ward, shown = room.ward, room.farthest(told)
    taught = ward.taught(
        [*ward.trusted, *room.named(shown)],
        paired(room.indices, shows, told),
        [],
        ward.settings.quarantine_epochs,
        "kin",
    )
    scores = room.seen_by(taught)[1]
    judged = room.obeying & ~told & ~shown
    far = _fallen(room, lead(scores, room.labels), judged)
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


def _fallen(room: Likened, after: Tensor, judged: Tensor) -> Tensor:
    """Who obeyed and has lost far more of the lead of its label than clean samples do; these are among the judged."""
    rose, far = after - room.before, torch.zeros_like(judged)
    for mine in room.by_label(judged):
        middle, high = clean_middle(rose[mine & judged])
        far |= mine & room.obeying & (rose < middle - FAR * (high - middle))
    return far


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
