"""Medicine: training data that tell the truth about a trigger, and the fine-tuning with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.antidote.trigger import Trigger, onto_each
from potion.batches import Batch, Overlay
from potion.patch import movable
from potion.runtime import copied, lies_channels_last, set_layout
from potion.training import Recipe, train

__all__ = ["Medicine", "taught"]

GROUPS: Final = 8
"""So many different transplants in one batch."""
STEPS: Final = 16
SMALLEST: Final = 16
"""An epoch has so many steps at least, if batches of so many samples give them: of a small set larger ones teach nothing."""


class Medicine(Overlay):
    """The data ``below`` with corrected labels, and a transplanted trigger on a ``share`` of the images it does not claim.

    Every other transplant is moved, for triggers that are not always in one place.
    """

    def __init__(
        self,
        below: Dataset[Any],
        corrected: Mapping[int, int],
        triggers: Sequence[Trigger],
        device: torch.device,
        *,
        share: float,
        seed: int,
    ) -> None:
        self.below, self.corrected, self.triggers = below, dict(corrected), list(triggers)
        self.device, self.share = device, share
        self._claimed = torch.tensor(sorted({trigger.target for trigger in triggers}), device=device)
        self._generator = torch.Generator().manual_seed(seed)

    def changed(self, inputs: Tensor, labels: Tensor, indices: Sequence[int]) -> Batch:
        inputs = inputs.float()
        changed = [(place, self.corrected[row]) for place, row in enumerate(indices) if row in self.corrected]
        if changed:
            places, truth = torch.tensor(changed).T.to(labels.device, non_blocking=True)
            labels = labels.index_copy(0, places, truth)
        if self.triggers:
            inputs = self._transplanted(inputs, labels)
        return inputs, labels

    def _transplanted(self, inputs: Tensor, labels: Tensor) -> Tensor:
        count = round(self.share * len(inputs))
        if not count:
            return inputs
        groups = torch.randperm(len(inputs), generator=self._generator)[:count].chunk(GROUPS)
        pairs = [(self._drawn(moved=bool(number % 2)), some) for number, some in enumerate(groups)]
        pairs.sort(key=lambda pair: pair[0].domain)
        rows = torch.cat([some for _, some in pairs]).to(inputs.device, non_blocking=True)
        before = inputs[rows]
        after = onto_each(before, [(trigger, len(some)) for trigger, some in pairs])
        free = ~torch.isin(labels[rows], self._claimed)
        return inputs.index_copy(0, rows, torch.where(free[:, None, None, None], after, before))

    def _drawn(self, *, moved: bool) -> Trigger:
        trigger = self.triggers[int(torch.randint(len(self.triggers), (), generator=self._generator))]
        return trigger.moved(self._generator) if moved else trigger


def taught(
    model: nn.Module,
    medicine: Medicine,
    indices: Sequence[int],
    *,
    epochs: float,
    batch_size: int,
    lr: float,
    seed: int,
    progress: bool,
    workers: int = 0,
    bfloat16: bool = False,
) -> nn.Module:
    """A copy of ``model``, fine-tuned on some of the medicine for a short time, at a low rate that falls to nothing.

    Batch norms keep their statistics and nothing is dropped out, so that only weights change; and those that a patch cannot
    move (:func:`potion.patch.movable`) stay what they are, as in a pruned network.
    """
    student, layout = copied(model), lies_channels_last(model)
    for p in student.parameters():
        p.requires_grad_(p.is_floating_point())
        moves = movable(p.detach())
        if p.requires_grad and not moves.all():
            p.register_hook(partial(torch.mul, moves))
    size = min(batch_size, max(SMALLEST, len(indices) // STEPS), len(indices))
    recipe = Recipe(
        iterations=max(1, round(epochs * len(indices) / size)),
        batch_size=size,
        lr=lr,
        warm_up=0.1,
        decay=1.0,
        precision="bfloat16" if bfloat16 else "float32",
        channels_last=layout,
        frozen_statistics=True,
        largest_norm=1.0,
    )
    train(
        student,
        medicine,
        recipe,
        indices=indices,
        seed=seed,
        device=medicine.device,
        progress=progress,
        workers=workers,
    )
    set_layout(student, channels_last=layout)
    return student.requires_grad_(False)
