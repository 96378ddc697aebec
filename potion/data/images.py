"""Labelled images, in memory or on disk, that hand out uint8 batches."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from potion.batches import TwoStage
from potion.data.decode import decode, mode_of
from potion.data.encoded import Encoded
from potion.data.views import as_floats

__all__ = ["DiskImages", "ImageSet", "Images"]

SMALL: Final = 2**14
"""Images of fewer bytes are decoded one after the other: handing them to threads takes longer than decoding them."""


class Images(TwoStage):
    """Base of both: ``labels`` int64 (N,) and the names of the ``classes``."""

    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def prepare(self, images: Tensor, indices: Tensor) -> Tensor:
        """uint8 -> floats in [0, 1]."""
        return as_floats(images)


@dataclass(frozen=True)
class ImageSet(Images):
    """All images in memory, the computer's or the GPU's: ``images`` uint8 (N, C, H, W)."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    @classmethod
    def decoded(cls, encoded: Encoded, size: int | None = None, limit: int | None = None) -> ImageSet:
        """Decode everything, or the first ``limit``. Without ``size`` the images must all be of one size."""
        count = len(encoded) if limit is None else min(limit, len(encoded))
        mode = mode_of(encoded)
        first = decode(encoded, 0, mode=mode, size=size)
        images = np.empty((count, *first.shape), np.uint8)

        def place(index: int) -> None:
            pixels = decode(encoded, index, mode=mode, size=size)
            if pixels.shape != first.shape:
                raise ValueError(
                    f"{encoded.where(index)}: the image is {_pixels(pixels)}, the first one {_pixels(first)}; "
                    "give a size (--size) to bring them to"
                )
            images[index] = pixels

        if first.nbytes < SMALL:
            for index in range(count):
                place(index)
        else:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for _ in pool.map(place, range(count)):
                    pass
        return cls(torch.from_numpy(images), encoded.labels[:count], encoded.classes)

    def raw(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = indices.to(self.images.device, non_blocking=True)
        return self.images.index_select(0, rows), self.labels.index_select(0, rows)  # much faster than images[rows]

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set with its pixels on a device, where batches are then made."""
        return ImageSet(self.images.to(device), self.labels.to(device), self.classes)

    def padded(self, size: int) -> ImageSet:
        """The same images with black borders, ``size`` pixels wide and high."""
        height, width = self.images.shape[-2:]
        if size < max(height, width):
            raise ValueError(f"cannot pad images of {width}x{height} pixels to {size}: that is smaller")
        top, left = (size - height) // 2, (size - width) // 2
        borders = (left, size - width - left, top, size - height - top)
        return ImageSet(pad(self.images, borders), self.labels, self.classes)


class DiskImages(Images):
    """Images that stay on disk and are decoded batch by batch, for sets that do not fit into memory."""

    def __init__(self, encoded: Encoded, size: int) -> None:
        self.encoded, self.size, self.mode = encoded, size, mode_of(encoded)
        self.labels, self.classes = encoded.labels, encoded.classes

    def raw(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        pixels = [decode(self.encoded, index, mode=self.mode, size=self.size) for index in indices.tolist()]
        return torch.from_numpy(np.stack(pixels)), self.labels[indices.cpu()]

    def cheap_order(self, generator: torch.Generator) -> list[int] | None:
        return self.encoded.cheap_order(generator)


def _pixels(image: np.ndarray[Any, Any]) -> str:
    return f"{image.shape[2]}x{image.shape[1]}"
