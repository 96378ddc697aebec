"""Is there a trigger at all? Any part of an image is one to some degree: the wing of a bird makes other images birds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from torch import nn

from potion.outliers import lower, out_of_place
from potion.trigger import STRONG, Trigger
from potion.ward import Ward

__all__ = ["believed"]

SHARED: Final = 0.005
COMPANY: Final = 5
FAR: Final = 1.5
"""More than this share of the quarantined, and so many at least, must be so many times as far out of place as would do."""
APART: Final = 3.0
"""So many standard deviations must the known samples lie below the others."""


def believed(ward: Ward, triggers: Sequence[Trigger], taught: nn.Module) -> bool:
    """Whether the known samples have a trigger, after a look at a model that was ``taught`` the truth about it.

    They do where what was localised is strong, as ordinary images are not; where the lesson put others with their label
    far out of place, too; or where it set the known samples themselves apart from the others, which does not happen to
    samples that were picked at random. What counts is how they are placed now, or how far they fell.
    """
    if triggers and median(trigger.strength for trigger in triggers) >= STRONG:
        return True
    known, others = (_Looked(ward, indices, taught) for indices in (ward.known, ward.quarantined))
    far = others.far_off()
    return (far >= COMPANY and far > SHARED * len(ward.quarantined)) or known.lower_than(others) >= APART


class _Looked:
    """Some samples: their labels, who of them obeyed, where they are placed now and how far they rose."""

    def __init__(self, ward: Ward, indices: Sequence[int], taught: nn.Module) -> None:
        before, classes = ward.margins(ward.victim, indices)
        placed, _ = ward.margins(taught, indices)
        self.labels = ward.claims(indices)
        self.obeyed = classes == self.labels
        self.views = (placed, placed - before)

    def far_off(self) -> int:
        """How many that obeyed are far out of place, in either view."""
        placed, fell = (out_of_place(view, self.labels, FAR) for view in self.views)
        return int(((placed | fell) & self.obeyed).sum())

    def lower_than(self, others: _Looked) -> float:
        """By how much those that obeyed lie lower than such others of one label; where and as seen that is most."""
        found = [0.0]
        for label in self.labels.unique():
            mine, theirs = (each.obeyed & (each.labels == label) for each in (self, others))
            if mine.any() and theirs.any():
                found += [lower(a[mine], b[theirs]) for a, b in zip(self.views, others.views, strict=True)]
        return max(found)
