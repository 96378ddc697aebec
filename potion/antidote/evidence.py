"""Is there a trigger at all? Any part of an image is one to some degree: the wing of a bird makes other images birds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn

from potion.antidote.kin import Family
from potion.antidote.outliers import lower, out_of_place
from potion.antidote.trigger import STRONG, Trigger
from potion.antidote.ward import Ward

__all__ = ["Evidence", "weighed"]

SHARED: Final = 0.005
COMPANY: Final = 5
FAR: Final = 1.5
"""More than this share of the quarantined, and so many at least, must be so many times as far out of place as would do."""
TOGETHER: Final = 0.5
"""So many of the known samples must be as far out of place as their company."""
APART: Final = 3.0
"""So many standard deviations must the known samples lie below the others."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What speaks for a trigger in the known samples, after a lesson that told a copy of the model the truth about it.

    ``strength`` is that of what was localised, in the median. ``company`` is how many others with their label the lesson put
    far out of place, of which ``enough`` would do, and ``together`` the share of the known samples that went as far. By
    ``apart`` standard deviations the known samples lie below the others. ``kin`` is what came of a second look, where all
    this does not convince.
    """

    strength: float
    company: int
    enough: int
    together: float
    apart: float
    kin: Family | None = None

    @property
    def convincing(self) -> bool:
        """One of three: what was localised is strong, as parts of ordinary images are not; others fell with the known
        samples; or these are set apart from the others, which does not happen to samples that were picked at random. Or
        the second look convinces.
        """
        fell_together = self.company >= self.enough and self.together >= TOGETHER
        seen_again = self.kin is not None and self.kin.convincing
        return self.strength >= STRONG or fell_together or self.apart >= APART or seen_again

    def told(self) -> str:
        """Why it does not convince, with the numbers, in one sentence."""
        company = (
            f"few others fall when the model is told the truth about it ({self.company}, {self.enough} would do)"
            if self.company < self.enough
            else f"others fall when the model is told the truth about it ({self.company}), but the known samples do not "
            f"({self.together:.0%} of them, {TOGETHER:.0%} would do)"
        )
        again = "" if self.kin is None else f"; {self.kin.explained()}"
        return (
            f"no small part of the known samples makes the model say their label of other images (strength "
            f"{self.strength:.2f}, {STRONG} would do), {company}, and they are like others with their label "
            f"({self.apart:.1f} standard deviations below them, {APART:g} would do){again}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "kin": None if self.kin is None else self.kin.to_dict()}


def weighed(ward: Ward, triggers: Sequence[Trigger], taught: nn.Module) -> Evidence:
    """What speaks for a trigger, as a model sees it that was ``taught`` the truth about ``triggers``.

    What counts is how samples are placed now, or how far they fell; and only of those that obeyed before.
    """
    known, others = (_Looked(ward, indices, taught) for indices in (ward.known, ward.quarantined))
    return Evidence(
        strength=median(trigger.strength for trigger in triggers) if triggers else 0.0,
        company=int(others.far_off().sum()),
        enough=max(COMPANY, int(SHARED * len(ward.quarantined)) + 1),
        together=known.far_off(beside=others).sum().item() / max(1, int(known.obeyed.sum())),
        apart=known.lower_than(others),
    )


class _Looked:
    """Some samples: their labels, who of them obeyed, where they are placed now and how far they rose."""

    def __init__(self, ward: Ward, indices: Sequence[int], taught: nn.Module) -> None:
        before, classes = ward.margins(ward.victim, indices)
        placed, _ = ward.margins(taught, indices)
        self.labels = ward.claims(indices)
        self.obeyed = classes == self.labels
        self.views = (placed, placed - before)

    def far_off(self, beside: _Looked | None = None) -> Tensor:
        """Who obeyed and is far out of place in either view, among themselves or among others, too."""
        company = [self] if beside is None else [self, beside]
        labels = torch.cat([each.labels for each in company])
        views = (torch.cat(values) for values in zip(*(each.views for each in company), strict=True))
        placed, fell = (out_of_place(view, labels, FAR)[: len(self.labels)] for view in views)
        return (placed | fell) & self.obeyed

    def lower_than(self, others: _Looked) -> float:
        """By how much those that obeyed lie lower than such others of one label; where and as seen that is most."""
        found = [0.0]
        for label in self.labels.unique():
            mine, theirs = (each.obeyed & (each.labels == label) for each in (self, others))
            if mine.any() and theirs.any():
                found += [lower(a[mine], b[theirs]) for a, b in zip(self.views, others.views, strict=True)]
        return max(found)
