"""What a trigger is: a small part of an image, in some way of describing images, that can be put onto others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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

    def moved(self, generator: torch.Generator) -> Trigger:
        """The trigger of a patch somewhere else: mirrored half of the time, or anywhere. A wave stays where it is."""
        if self.domain != "pixels":
            return self
        mask, source = self.mask, self.source
        if float(torch.rand((), generator=generator)) < 0.5:
            dims = [d for d in (-1, -2) if float(torch.rand((), generator=generator)) < 0.5]
            mask, source = mask.flip(dims), source.flip(dims)
        else:
            rows, columns = torch.nonzero(mask.any(1)).flatten().tolist(), torch.nonzero(mask.any(0)).flatten().tolist()
            height, width = mask.shape
            down = _draw(-rows[0], height - 1 - rows[-1], generator)
            right = _draw(-columns[0], width - 1 - columns[-1], generator)
            mask, source = mask.roll((down, right), (0, 1)), source.roll((down, right), (1, 2))
        return replace(self, mask=mask, source=source)


def _draw(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))
