"""Who carries a trigger: a sample whose label wins whatever other image it is mixed with.

A trigger works on any image, so it works on the even mixture of a poisoned image with another one as well; what an ordinary
image shows is lost in some of its mixtures. That is STRIP (Gao et al., 2019), which watches the inputs of a running model.
Here it tells poison in a training set from the hard clean samples of its label, whatever shape and place the trigger has in
each of them; poison that is already known tells whether it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote.margins import lead
from potion.antidote.outliers import clean_middle, lower
from potion.batches import DatasetBatches
from potion.forward import logits, placement

__all__ = ["MIXED", "ORDINARY", "Carriers", "steadiness"]

MIXED: Final = 16
"""With so many trusted images is each sample mixed."""
ORDINARY: Final = 1024
"""So many other trusted images say how steady ordinary ones are."""
LOST: Final = 0.1
"""So many of its mixtures may be below a sample's steadiness."""
APART: Final = 3.0
"""By so many standard deviations of a rank test must poison be steadier than the rest."""


@torch.no_grad()
def steadiness(
    model: nn.Module, dataset: Dataset[Any], indices: Sequence[int], others: Tensor, batch_size: int, workers: int = 0
) -> Tensor:
    r"""By how much the labels of samples win, or lose least, in all but a tenth of their mixtures; on the CPU.

    With f the margin of the label y of z, the 10 % quantile over the images x in ``others`` of :math:`f_y((z + x) / 2)`.
    """
    found = [torch.zeros(0, dtype=torch.float64)]
    for inputs, labels in DatasetBatches(dataset, indices, batch_size, workers, device=placement(model)[0]):
        mixed = [lead(logits(model, (inputs + other) / 2).cpu().double(), labels.cpu()) for other in others]
        found.append(torch.stack(mixed).quantile(LOST, dim=0))
    return torch.cat(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Carriers:
    """What mixtures say of samples: how ``steady`` they are, who ``carries`` a trigger, and who ``may``.

    Clean samples' steadiness spreads to both sides of its middle alike (:func:`~potion.antidote.outliers.clean_middle`),
    or, of a network that is sure of what it sees, farther up than down, as trusted samples show. A carrier is farther above
    that middle than any but 1 % are below it, and steadier than 99 % of trusted samples; where there are any, who lies below
    the middle carries nothing. A label where that says nothing has no carriers, and all may.
    """

    steady: Tensor
    carries: Tensor
    may: Tensor

    @classmethod
    def nobody(cls, steady: Tensor) -> Carriers:
        """Mixtures say nothing."""
        none = torch.zeros(len(steady), dtype=torch.bool)
        return cls(steady=steady, carries=none, may=~none)

    def only(self, some: Tensor) -> Carriers:
        """The same, where only some may be poison at all."""
        return replace(self, carries=self.carries & some, may=self.may & some)

    @classmethod
    def among(cls, steady: Tensor, labels: Tensor, poison: Tensor, trusted: Tensor) -> Carriers:
        """Who carries among samples of such steadiness and labels, if ``poison`` among them is steadier than the rest.

        Else the trigger does not survive a mixture, hardly works, or is none: ordinary samples that are taken for poison
        are hard ones, and these are less steady than others. ``trusted`` is how steady trusted samples are, if any are at
        hand.
        """
        found = cls.nobody(steady)
        ordinary = trusted.quantile(0.99) if len(trusted) else steady.new_tensor(-torch.inf)
        for label in labels[poison].unique():
            mine = labels == label
            if lower(-steady[mine & poison], -steady[mine & ~poison]) >= APART:
                middle, low = (-value for value in clean_middle(-steady[mine]))
                found.carries[mine] = steady[mine] > torch.maximum(2 * middle - low, ordinary)
                found.may[mine] = (steady[mine] > middle) | ~found.carries[mine].any()
        return found
