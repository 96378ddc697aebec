"""Images from anywhere as a model in training saw them: decoded, augmented, normalised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from potion.batches import TwoStage
from potion.data import DATASETS, DiskImages, Encoded, Images, ImageSet, View, locate
from potion.data.decode import decode, mode_of
from potion.data.load import splits_in
from potion.data.views import as_floats

__all__ = ["Seen", "aligned", "images_of", "test_images"]

IN_MEMORY: Final = 8 * 2**30
"""Bytes of decoded images that are held in memory; larger sets stay on disk and are decoded batch by batch."""


class Seen(TwoStage):
    """``images`` through a ``view`` and, with ``mean`` and ``std``, normalised: for models that leave that to the data."""

    def __init__(
        self, images: Images, view: View, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        self.images, self.view, self.mean, self.std = images, view, mean, std
        self.labels, self.classes = images.labels, images.classes

    def plain(self) -> Seen:
        """The same set without augmentation."""
        return Seen(self.images, self.view.plain(), self.mean, self.std)

    def __len__(self) -> int:
        return len(self.images)

    def raw(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.images.raw(indices)

    def prepare(self, images: Tensor, indices: Tensor) -> Tensor:
        pixels = as_floats(self.view(images))
        if self.mean is None or self.std is None:
            return pixels
        if pixels.shape[1] != len(self.mean):
            raise ValueError(
                f"--mean and --std have {len(self.mean)} values, but the images have {pixels.shape[1]} channels"
            )
        mean, std = (torch.tensor(values, device=pixels.device).view(-1, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std

    def cheap_order(self, generator: torch.Generator) -> list[int] | None:
        return self.images.cheap_order(generator)


def images_of(source: str, encoded: Encoded, size: int | None) -> Images:
    """The images in memory where they fit, else on disk; of one size, which ``size`` says where they differ."""
    named = DATASETS.get(source)
    size = size or (named.size if named else None)
    first = decode(encoded, 0, mode=mode_of(encoded), size=size)
    if first.nbytes * len(encoded) <= IN_MEMORY:
        return ImageSet.decoded(encoded, size)
    if size is None:
        raise ValueError(
            f"{source}: {len(encoded):,} images are too many for memory; to read them in batches, give --size"
        )
    return DiskImages(encoded, size)


def test_images(source: str, classes: tuple[str, ...]) -> Encoded:
    """Images to score on: the test split, or all there is where there are no splits, with the training set's classes."""
    whole = Path(source).exists() and not splits_in(Path(source))
    encoded = locate(source, "train" if whole else "test", may_lack_classes=True)
    return aligned(encoded, classes, source, "the training data")


def aligned(encoded: Encoded, classes: tuple[str, ...], source: str, there: str) -> Encoded:
    """Number the labels as ``classes`` are, by their names; ``encoded`` may lack some of those that are ``there``."""
    if encoded.classes == classes:
        return encoded
    if unknown := [name for name in encoded.classes if name not in classes]:
        raise ValueError(f"{source}: there is no class {unknown[0]!r} in {there}")
    encoded.labels = torch.tensor([classes.index(name) for name in encoded.classes])[encoded.labels]
    encoded.classes = classes
    return encoded
