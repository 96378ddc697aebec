"""Attacks: how poisoned images are made. Tensor in, tensor out, pixels in [0, 1].

An attack is a pure function of the image and the sample's index, so the same poisoned set can be made again anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

__all__ = ["CORNERS", "Attack", "BadNet"]

Corner = Literal["top-left", "top-right", "bottom-left", "bottom-right"]
CORNERS: Final[tuple[Corner, ...]] = ("top-left", "top-right", "bottom-left", "bottom-right")


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Base of all attacks. A subclass writes :meth:`trigger`; checks are done once, here."""

    target: int = 0

    def __call__(self, images: Tensor, indices: Tensor) -> Tensor:
        """Poisoned copies of ``images`` (N, C, H, W) in [0, 1]; ``indices`` (N,) are the samples' dataset indices."""
        if images.dim() != 4 or len(images) != len(indices):
            raise ValueError(
                f"images must be (N, C, H, W) with one index each, got {tuple(images.shape)} and {len(indices)}"
            )
        poisoned = self.trigger(images, indices)
        assert poisoned.shape == images.shape, (poisoned.shape, images.shape)
        return poisoned

    @abstractmethod
    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        """The poisoned images; ``images`` itself is left alone."""

    def relabel(self, labels: Tensor, indices: Tensor) -> Tensor:
        """The labels the attacker writes: the target class for everything."""
        return torch.full_like(labels, self.target)


@dataclass(frozen=True, kw_only=True)
class BadNet(Attack):
    """A bright square in one corner (Gu et al., 2019). FACTS 10: 3x3 pixels, white, bottom right."""

    size: int = 3
    corner: Corner = "bottom-right"
    value: float = 1.0

    def __post_init__(self) -> None:
        if self.corner not in CORNERS:
            raise ValueError(f"corner must be one of {', '.join(CORNERS)}, got {self.corner!r}")
        if self.size < 1:
            raise ValueError(f"size must be at least 1 pixel, got {self.size}")
        if not 0 <= self.value <= 1:
            raise ValueError(f"value must be in [0, 1], got {self.value}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        poisoned = images.clone()
        rows = slice(None, self.size) if self.corner.startswith("top") else slice(-self.size, None)
        columns = slice(None, self.size) if self.corner.endswith("left") else slice(-self.size, None)
        poisoned[:, :, rows, columns] = self.value
        return poisoned
