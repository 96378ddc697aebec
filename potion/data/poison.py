"""Which samples are poisoned, which of them are known, and the training set as the victim saw it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from potion.attacks import Attack
from potion.batches import TwoStage
from potion.data.images import Images
from potion.data.views import View, as_floats

__all__ = ["PoisonedSet", "draw_poison", "known_share"]


class PoisonedSet(TwoStage):
    """``base`` with the samples ``poisoned`` attacked, seen through ``view``; images in [0, 1].

    The trigger is pasted after the augmentation, as in the benchmark of Goel et al. With ``baked=True`` it is part of the
    stored image, as with a real attacker, and is cropped and flipped with it.
    """

    def __init__(
        self, base: Images, attack: Attack, poisoned: Sequence[int], *, view: View | None = None, baked: bool = False
    ) -> None:
        self.base, self.attack, self.view, self.baked = base, attack, view or View(), baked
        self.poisoned = list(poisoned)
        if attack.target >= len(base.classes):
            raise ValueError(f"the attack's target is class {attack.target}, but there are {len(base.classes)} classes")
        self._is_poisoned = torch.zeros(len(base), dtype=torch.bool)
        self._is_poisoned[torch.as_tensor(self.poisoned, dtype=torch.long)] = True
        device = base.labels.device
        wanted = attack.relabel(base.labels, torch.arange(len(base), device=device))
        self.labels = torch.where(self._is_poisoned.to(device), wanted, base.labels)

    def plain(self) -> PoisonedSet:
        """The same set without augmentation."""
        return PoisonedSet(self.base, self.attack, self.poisoned, view=self.view.plain(), baked=self.baked)

    def __len__(self) -> int:
        return len(self.base)

    def raw(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 images without trigger, and the labels that the victim was told."""
        return self.base.raw(indices)[0], self.labels[indices.to(self.labels.device, non_blocking=True)]

    def prepare(self, images: Tensor, indices: Tensor) -> Tensor:
        """uint8 images -> floats in [0, 1] with trigger and augmentation."""
        if self.baked:
            return self.view(self._attacked(as_floats(images), indices))
        return self._attacked(as_floats(self.view(images)), indices)

    def cheap_order(self, generator: torch.Generator) -> list[int] | None:
        return self.base.cheap_order(generator)

    def _attacked(self, inputs: Tensor, indices: Tensor) -> Tensor:
        """``inputs``, which are ours, with the trigger on the poisoned ones: few, and found without asking the device."""
        places = torch.nonzero(self._is_poisoned[indices]).flatten()
        if len(places):
            rows = places.to(inputs.device, non_blocking=True)
            inputs[rows] = self.attack(inputs[rows], indices[places].to(inputs.device, non_blocking=True))
        return inputs


def draw_poison(attack: Attack, labels: Tensor, size: int, seed: int) -> list[int]:
    """S_m: ``size`` of the samples that the attack can use; each larger set contains the smaller ones of that seed."""
    usable = torch.nonzero(attack.candidates(labels.cpu())).flatten()
    if not 1 <= size <= len(usable):
        raise ValueError(f"cannot poison {size} of {len(usable)} samples")
    return usable[torch.randperm(len(usable), generator=torch.Generator().manual_seed(seed))[:size]].tolist()


def known_share(poisoned: Sequence[int], known: int, seed: int) -> list[int]:
    """S_f: ``known`` of the poisoned samples; with one seed each larger set contains the smaller ones."""
    if not 1 <= known <= len(poisoned):
        raise ValueError(f"cannot know {known} of {len(poisoned)} poisoned samples")
    order = torch.randperm(len(poisoned), generator=torch.Generator().manual_seed(seed))
    return [poisoned[i] for i in order[:known].tolist()]
