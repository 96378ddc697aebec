"""What is done to a batch of images on its way into a model: resize, crop, flip. In one go, on the images' device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

__all__ = ["View", "as_floats"]


@dataclass(frozen=True, kw_only=True)
class View:
    """Resize to ``size`` pixels, crop at random out of the image padded by ``padding``, ``flip`` at random.

    ``View(padding=4, flip=True)`` is the augmentation of the CIFAR victims (FACTS 11). Draws come from torch's random
    state of the images' device.
    """

    size: int | None = None
    padding: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be at least 1 pixel, got {self.size}")
        if self.padding < 0:
            raise ValueError(f"padding must be 0 or more pixels, got {self.padding}")

    def plain(self) -> View:
        """The same view without the random parts."""
        return replace(self, padding=0, flip=False)

    def __call__(self, images: Tensor) -> Tensor:
        """(N, C, H, W) bytes or floats in [0, 1] -> the same, resized and augmented. Bytes stay bytes unless resized."""
        if self.size is not None and images.shape[-2:] != (self.size, self.size):
            images = interpolate(as_floats(images), (self.size, self.size), mode="bilinear", antialias=True).clamp(0, 1)
        return _crop_and_flip(images, self.padding, self.flip) if self.padding or self.flip else images


def as_floats(images: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]; floats as they are."""
    return images if images.is_floating_point() else images.float() / 255


def _crop_and_flip(images: Tensor, padding: int, flip: bool) -> Tensor:
    """Each image's own random window of the zero-padded image, mirrored or not."""
    count, _, height, width = images.shape
    top, left = torch.randint(0, 2 * padding + 1, (2, count, 1), device=images.device)[..., 0]
    mirrored = torch.rand(count, 1, device=images.device)[:, :, None, None] < (0.5 if flip else 0.0)
    # All windows as a view; then one copy of the chosen ones.
    windows = pad(images, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    chosen = windows[torch.arange(count, device=images.device), :, top, left]
    return torch.where(mirrored, chosen.flip(-1), chosen)
