"""What is done to a batch of images on its way into a model: resize, crop, flip. In one go, on the images' device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

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
    return images if images.is_floating_point() else images.float().div_(255)


def _crop_and_flip(images: Tensor, padding: int, flip: bool) -> Tensor:
    """Each image's own random window of the zero-padded image, mirrored or not, in one gather."""
    count, channels, height, width = images.shape
    device = images.device
    top, left = torch.randint(0, 2 * padding + 1, (2, count, 1), device=device)
    mirrored = torch.rand(count, 1, device=device) < (0.5 if flip else 0.0)
    columns = torch.arange(width, device=device).expand(count, -1)
    columns = left + torch.where(mirrored, columns.flip(1), columns)
    rows = top + torch.arange(height, device=device)
    wide = width + 2 * padding
    padded = images.new_zeros(count, channels, height + 2 * padding, wide)
    padded[:, :, padding : padding + height, padding : padding + width] = images
    places = (rows[:, :, None] * wide + columns[:, None, :]).view(count, 1, -1).expand(-1, channels, -1)
    return padded.view(count, channels, -1).gather(2, places).view(images.shape)
