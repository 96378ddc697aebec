"""What a trigger is: a small part of an image, in some way of describing images, that can be put onto others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

__all__ = ["DOMAINS", "SOUGHT", "STRONG", "Domain", "Trigger", "onto_each"]


STRONG: Final = 0.14
"""A trigger of this strength is taken for one. No image that was tried had it for a clean CIFAR-10 model; for a poisoned
one a few have."""
PATCH: Final = 0.05
"""A patch is no larger a part of an image."""
MIRRORS: Final[tuple[list[int], ...]] = ([], [-1], [-2], [-1, -2])


@dataclass(frozen=True)
class Domain:
    """A way of describing images in which a trigger may be small: entries that a mask takes from another image, or adds.

    ``cost`` is the number of values that one entry holds in each channel.
    """

    name: str
    shape: Callable[[int, int], tuple[int, int]]
    mixed: Callable[[Tensor, Tensor, Tensor], Tensor]
    cost: int


def _mixed_pixels(images: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    return torch.lerp(images, source, mask)


def _mixed_waves(images: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    theirs, ours = torch.fft.rfft2(source), torch.fft.rfft2(images)
    mixed: Tensor = torch.fft.irfft2(ours + mask * (theirs - ours), s=images.shape[-2:])
    return mixed


def _added(images: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    return images + mask * source


DOMAINS: Final = {
    "pixels": Domain("pixels", lambda height, width: (height, width), _mixed_pixels, cost=1),
    "waves": Domain("waves", lambda height, width: (height, width // 2 + 1), _mixed_waves, cost=2),
    "sums": Domain("sums", lambda height, width: (height, width), _added, cost=1),
}
SOUGHT: Final = ("pixels", "waves")
"""The domains in which masks are searched for; what is to be added comes from an average (``pattern.py``)."""


def extremes(*images: Tensor) -> tuple[float, float]:
    """The smallest and the largest value of images. Poisoned ones belong to them: a trigger may be the brightest thing."""
    return min(float(each.min()) for each in images), max(float(each.max()) for each in images)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trigger:
    """Entries ``mask`` of the image ``source`` in a domain; put onto other images they make the model say ``target``.

    ``success`` is how often; ``control`` how often the same entries of ordinary images of the target class do.
    ``limits`` are the smallest and largest value that an input takes. ``drafts`` are the masks in [0, 1], by domain, that
    it was cut from.
    """

    domain: str
    mask: Tensor = field(repr=False)
    source: Tensor = field(repr=False)
    target: int
    success: float
    control: float
    limits: tuple[float, float]
    drafts: Mapping[str, Tensor] = field(repr=False, default_factory=dict)

    @property
    def size(self) -> int:
        """How many entries it takes."""
        return int(self.mask.sum())

    @property
    def cost(self) -> int:
        """The length of its description: values in a channel."""
        return self.size * DOMAINS[self.domain].cost

    @property
    def gain(self) -> float:
        """How much more often it works than chance would have it."""
        return self.success - self.control

    @property
    def strength(self) -> float:
        """What it gains for the length of its description: a real trigger does much with little."""
        return self.gain / math.log2(1 + self.cost)

    @property
    def strong(self) -> bool:
        """Whether it is clearly a trigger, and not some part of an image that looks like its class."""
        return self.strength >= STRONG

    def to_dict(self) -> dict[str, Any]:
        """Without the images, ready for JSON."""
        told = {"domain": self.domain, "target": self.target, "size": self.size, "cost": self.cost}
        return told | {"success": self.success, "control": self.control, "strength": self.strength}

    def onto(self, images: Tensor) -> Tensor:
        """The images with the trigger in its place."""
        mask = self.mask.to(images)
        return DOMAINS[self.domain].mixed(images, self.source.to(images), mask).clamp(*self.limits)

    def with_success(self, success: float) -> Trigger:
        """The same, after a look at how often it works."""
        return replace(self, success=success)

    def wider(self) -> Trigger:
        """With the neighbours of the pixels that it takes: a mask is as small as still works, and the patch that was pasted
        may be larger. Pixels all over the image are no patch, and with their neighbours another image; waves have none.
        """
        if self.domain != "pixels":
            return self
        around = max_pool2d(self.mask[None].float(), 3, stride=1, padding=1)[0]
        return replace(self, mask=around > 0) if float(around.mean()) <= PATCH else self

    def moved(self, generator: torch.Generator) -> Trigger:
        """The trigger of a patch somewhere else: mirrored half of the time, or anywhere. All others stay where they are."""
        if self.domain != "pixels":
            return self
        if float(torch.rand((), generator=generator)) < 0.5:
            dims = MIRRORS[_draw(0, len(MIRRORS) - 1, generator)]
            return replace(self, mask=self.mask.flip(dims), source=self.source.flip(dims))
        shift = [_draw(low, high, generator) for low, high in self._room]
        return replace(self, mask=self.mask.roll(shift, (0, 1)), source=self.source.roll(shift, (1, 2)))

    def drawn(self, images: Tensor) -> Tensor:
        """Inputs as pictures, uint8: the smallest value black, the largest white."""
        low, high = self.limits
        scaled: Tensor = ((images - low) / (high - low) * 255).round().clamp(0, 255).to("cpu", torch.uint8)
        return scaled

    def shown(self, images: Tensor) -> list[Tensor]:
        """Pictures of the trigger: on plain grey, what is added as strong as it can be, and on each of some images."""
        grey = torch.full_like(images[:1], sum(self.limits) / 2)
        visible = self
        if self.domain == "sums":
            room = (self.limits[1] - self.limits[0]) / 2
            visible = replace(self, source=self.source * (room / self.source.abs().max().clamp(min=1e-9)))
        return list(self.drawn(torch.cat([visible.onto(grey), self.onto(images)])))

    @cached_property
    def _room(self) -> list[tuple[int, int]]:
        """How far the mask can go up and down, left and right; asked of the device only once."""
        taken = [torch.nonzero(self.mask.any(other)).flatten().tolist() for other in (1, 0)]
        return [(-rows[0], size - 1 - rows[-1]) for rows, size in zip(taken, self.mask.shape, strict=True)]


def _draw(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def onto_each(images: Tensor, pairs: Sequence[tuple[Trigger, int]]) -> Tensor:
    """The images with triggers on them: the first so many with the first one, the next ones with the second, and so on.

    One operation for all neighbours of a domain: on a GPU small ones take longer to launch than to do.
    """
    triggers, sizes = zip(*pairs, strict=True)
    which = torch.arange(len(pairs)).repeat_interleave(torch.tensor(sizes)).to(images.device, non_blocking=True)
    limits = torch.tensor([trigger.limits for trigger in triggers]).to(images, non_blocking=True)[which]
    shown = []
    first = begin = 0
    for domain, members in groupby(triggers, key=lambda trigger: trigger.domain):
        some = list(members)
        end = begin + sum(sizes[first : first + len(some)])
        mine = which[begin:end] - first
        masks = torch.stack([each.mask for each in some]).to(images)[mine, None]
        sources = torch.stack([each.source for each in some]).to(images)[mine]
        shown.append(DOMAINS[domain].mixed(images[begin:end], sources, masks))
        first, begin = first + len(some), end
    low, high = limits[:, :, None, None, None].unbind(1)
    return torch.cat(shown).clamp(low, high)
