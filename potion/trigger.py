"""What a trigger is: a small part of an image, in some way of describing images, that can be put onto others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["DOMAINS", "Domain", "Trigger"]


@dataclass(frozen=True)
class Domain:
    """A way of describing images in which a trigger may be small: ``entries`` that a mask can take from another image.

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


DOMAINS: Final = {
    "pixels": Domain("pixels", lambda height, width: (height, width), _mixed_pixels, cost=1),
    "waves": Domain("waves", lambda height, width: (height, width // 2 + 1), _mixed_waves, cost=2),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Trigger:
    """Entries ``mask`` of the image ``source`` in a domain; put onto other images they make the model say ``target``.

    ``success`` is how often; ``control`` how often the same entries of ordinary images of the target class do.
    ``limits`` are the smallest and largest value that an input takes.
    """

    domain: str
    mask: Tensor
    source: Tensor
    target: int
    success: float
    control: float
    limits: tuple[float, float]

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

    def to_dict(self) -> dict[str, Any]:
        """Without the images, ready for JSON."""
        told = {"domain": self.domain, "target": self.target, "size": self.size, "cost": self.cost}
        return told | {"success": self.success, "control": self.control, "strength": self.strength}

    def onto(self, images: Tensor) -> Tensor:
        """The images with the trigger in its place."""
        mask = self.mask.to(images)
        return DOMAINS[self.domain].mixed(images, self.source.to(images), mask).clamp(*self.limits)

    def mirrored(self) -> list[Trigger]:
        """A patch and its mirror images in both directions; of a wave only itself."""
        if self.domain != "pixels":
            return [self]
        ways: list[list[int]] = [[], [-1], [-2], [-1, -2]]
        return [replace(self, mask=self.mask.flip(dims), source=self.source.flip(dims)) for dims in ways]

    def moved(self, generator: torch.Generator) -> Trigger:
        """The trigger of a patch somewhere else: mirrored half of the time, or anywhere. A wave stays where it is."""
        if self.domain != "pixels":
            return self
        if float(torch.rand((), generator=generator)) < 0.5:
            return self.mirrored()[_draw(0, 3, generator)]
        shift = [_draw(low, high, generator) for low, high in self._room]
        return replace(self, mask=self.mask.roll(shift, (0, 1)), source=self.source.roll(shift, (1, 2)))

    @cached_property
    def _room(self) -> list[tuple[int, int]]:
        """How far the mask can go up and down, left and right; asked of the device only once."""
        taken = [torch.nonzero(self.mask.any(other)).flatten().tolist() for other in (1, 0)]
        return [(-rows[0], size - 1 - rows[-1]) for rows, size in zip(taken, self.mask.shape, strict=True)]


def _draw(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))
