"""Images and their poisoned views, in batches that live wherever the images do."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from potion.attacks import Attack

__all__ = ["ImageSet", "PoisonedSet", "crop_and_flip", "draw_poison", "known_share", "read_parquet"]

Augment = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ImageSet(Dataset[tuple[Tensor, int]]):
    """Labelled images in memory: ``images`` uint8 (N, C, H, W), ``labels`` int64 (N,), the names of the classes."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index].float() / 255, int(self.labels[index])

    def get_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = indices.to(self.images.device)
        return self.images[rows].float() / 255, self.labels[rows]

    def padded(self, size: int) -> ImageSet:
        """The same images with black borders, ``size`` pixels wide and high."""
        height, width = self.images.shape[-2:]
        top, left = (size - height) // 2, (size - width) // 2
        borders = (left, size - width - left, top, size - height - top)
        return ImageSet(pad(self.images, borders), self.labels, self.classes)


class PoisonedSet(Dataset[tuple[Tensor, int]]):
    """``base`` with the samples ``poisoned`` attacked; images in [0, 1].

    The trigger is pasted after the augmentation, as in the benchmark of Goel et al. With ``augment=None`` the view is the
    plain one.
    """

    def __init__(
        self, base: ImageSet, attack: Attack, poisoned: Sequence[int], *, augment: Augment | None = None
    ) -> None:
        self.base, self.attack, self.augment = base, attack, augment
        self.is_poisoned = torch.zeros(len(base), dtype=torch.bool, device=base.labels.device)
        self.is_poisoned[torch.as_tensor(poisoned, dtype=torch.long)] = True
        everything = torch.arange(len(base), device=base.labels.device)
        self.labels = torch.where(self.is_poisoned, attack.relabel(base.labels, everything), base.labels)

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        inputs, labels = self.get_batch(torch.tensor([index]))
        return inputs[0], int(labels[0])

    def get_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = indices.to(self.labels.device)
        inputs, _ = self.base.get_batch(rows)
        if self.augment is not None:
            inputs = self.augment(inputs)
        inputs = torch.where(self.is_poisoned[rows, None, None, None], self.attack(inputs, rows), inputs)
        return inputs, self.labels[rows]


def crop_and_flip(images: Tensor, padding: int = 4) -> Tensor:
    """A random crop out of the zero-padded image and a random horizontal flip, drawn for each image (FACTS 11)."""
    count, _, height, width = images.shape
    place = torch.randint(0, 2 * padding + 1, (2, count, 1), device=images.device)
    flip = torch.rand(count, 1, device=images.device) < 0.5
    rows = place[0] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(count, -1)
    columns = place[1] + torch.where(flip, columns.flip(1), columns)
    samples = torch.arange(count, device=images.device)[:, None, None]
    padded = pad(images, (padding,) * 4).permute(0, 2, 3, 1)
    return padded[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def draw_poison(count: int, size: int, seed: int) -> list[int]:
    """S_m: ``size`` of ``count`` samples, of whatever class (FACTS 12)."""
    if not 1 <= size <= count:
        raise ValueError(f"cannot poison {size} of {count} samples")
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:size].tolist()


def known_share(poisoned: Sequence[int], known: int, seed: int) -> list[int]:
    """S_f: ``known`` of the poisoned samples; with one seed each larger set contains the smaller ones."""
    if not 1 <= known <= len(poisoned):
        raise ValueError(f"cannot know {known} of {len(poisoned)} poisoned samples")
    order = torch.randperm(len(poisoned), generator=torch.Generator().manual_seed(seed))
    return [poisoned[i] for i in order[:known].tolist()]


def read_parquet(path: Path) -> ImageSet:
    """Images of one size from a parquet file in the Hugging Face hub's layout (``image`` bytes, ``label``)."""
    table = pq.read_table(path)
    encoded = table.column("image").combine_chunks().field("bytes")
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(row.as_py()))) for row in encoded])
    images = torch.from_numpy(pixels if pixels.ndim == 4 else pixels[..., None]).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(table.column("label").to_numpy().astype(np.int64))
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    return ImageSet(images, labels, tuple(features["label"]["names"]))
