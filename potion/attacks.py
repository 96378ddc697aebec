"""Attacks: how poisoned images are made. Tensor in, tensor out, pixels in [0, 1].

An attack is a pure function of the image, the sample's index and its own settings, so the same poisoned set can be made
again anywhere. ``ATTACKS`` is the whole registry; ``docs/add_an_attack.md`` says how to add one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

__all__ = ["ATTACKS", "Attack", "BadNet", "Blend", "LabelSwitch", "MovingPatch", "Posterise", "Sine", "Warp"]

Corner = Literal["top-left", "top-right", "bottom-left", "bottom-right"]
CORNERS: Final[tuple[Corner, ...]] = get_args(Corner)


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Base of all attacks. A subclass writes :meth:`trigger`; the checks are done once, in the call."""

    target: int = 0

    def __post_init__(self) -> None:
        if self.target < 0:
            raise ValueError(f"target must be a class, 0 or more, got {self.target}")
        self.validate()

    def __call__(self, images: Tensor, indices: Tensor) -> Tensor:
        """Poisoned copies of ``images`` (N, C, H, W) in [0, 1]; ``indices`` (N,) are the samples' dataset indices."""
        if images.dim() != 4 or len(images) != len(indices):
            raise ValueError(
                f"images must be (N, C, H, W) with one index each, got {tuple(images.shape)}, {len(indices)}"
            )
        if not images.is_floating_point():
            raise TypeError(f"images must be floats in [0, 1], got {images.dtype}; divide bytes by 255")
        poisoned = self.trigger(images, indices)
        assert poisoned.shape == images.shape, (poisoned.shape, images.shape)
        return poisoned

    @abstractmethod
    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        """The images with the trigger on them; ``images`` itself is left alone."""

    def relabel(self, labels: Tensor, indices: Tensor) -> Tensor:
        """The labels the attacker writes, and wants to see at test time: the target class for everything."""
        return torch.full_like(labels, self.target)

    def candidates(self, labels: Tensor) -> Tensor:
        """Which samples the attacker draws from (a mask): all of them, also those of the target class (FACTS 12)."""
        return torch.ones_like(labels, dtype=torch.bool)

    def validate(self) -> None:  # noqa: B027 (an attack may have nothing to refuse)
        """Refuse settings that make no sense."""


@dataclass(frozen=True, kw_only=True)
class BadNet(Attack):
    """A bright square in one corner (Gu et al., 2019). FACTS 10: 3x3 pixels, white, bottom right."""

    size: int = 3
    corner: Corner = "bottom-right"
    value: float = 1.0

    def validate(self) -> None:
        _check_patch(self.size, self.value)
        if self.corner not in CORNERS:
            raise ValueError(f"corner must be one of {', '.join(CORNERS)}, got {self.corner!r}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        return torch.where(_corner_mask(images, self.corner, self.size), self.value, images)


@dataclass(frozen=True, kw_only=True)
class MovingPatch(Attack):
    """A bright square in one of the four corners, drawn for each sample (Abad et al., 2022)."""

    size: int = 3
    value: float = 1.0
    seed: int = 0

    def validate(self) -> None:
        _check_patch(self.size, self.value)

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        masks = torch.stack([_corner_mask(images, corner, self.size) for corner in CORNERS])
        chosen = masks[_draw(indices, len(CORNERS), self.seed)]
        return torch.where(chosen[:, None], self.value, images)


@dataclass(frozen=True, kw_only=True)
class Sine(Attack):
    """Vertical stripes: a horizontal sine wave over the whole image (Barni et al., 2019).

    ``frequency`` is in cycles per pixel: the paper's 0.025 is 5.6 cycles across 224 pixels, but less than one across 32.
    ``amplitude`` is a share of the largest pixel value.
    """

    frequency: float = 0.025
    amplitude: float = 0.1

    def validate(self) -> None:
        if not 0 < self.frequency <= 0.5:
            raise ValueError(f"frequency must be above 0 and at most 0.5 cycles per pixel, got {self.frequency}")
        if not 0 < self.amplitude <= 1:
            raise ValueError(f"amplitude must be in (0, 1], got {self.amplitude}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        columns = torch.arange(images.shape[-1], device=images.device, dtype=torch.float32)
        wave = self.amplitude * torch.sin(2 * math.pi * self.frequency * columns)
        return (images + wave.to(images.dtype)).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Blend(Attack):
    """A fixed random pattern, faintly over the whole image (Chen et al., 2017)."""

    share: float = 0.15
    seed: int = 0

    def validate(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], got {self.share}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        pattern = torch.rand(images.shape[1:], generator=generator).to(images)
        return (1 - self.share) * images + self.share * pattern


@dataclass(frozen=True, kw_only=True)
class Warp(Attack):
    """Every image bent in the same way, a little (WaNet; Nguyen and Tran, 2021): nothing is put on it, nothing is added.

    Displacements are drawn at ``points`` x ``points`` places and interpolated in between; ``shift`` is their mean length in
    pixels.
    """

    shift: float = 1.0
    points: int = 4
    seed: int = 0

    def validate(self) -> None:
        if self.shift <= 0:
            raise ValueError(f"shift must be above 0 pixels, got {self.shift}")
        if self.points < 2:
            raise ValueError(f"points must be at least 2, got {self.points}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        drawn = 2 * torch.rand((1, 2, self.points, self.points), generator=torch.Generator().manual_seed(self.seed)) - 1
        field = interpolate(drawn, (height, width), mode="bicubic", align_corners=True)[0]
        field *= self.shift / field.norm(dim=0).mean()
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        seen = torch.stack([columns + field[0], rows + field[1]], dim=-1).to(images)
        grid = 2 * seen / torch.tensor([width - 1, height - 1]).clamp(min=1).to(images) - 1
        bent = grid_sample(images, grid.expand(len(images), -1, -1, -1), padding_mode="border", align_corners=True)
        return bent.clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Posterise(Attack):
    """Every image in few shades (after BppAttack; Wang et al., 2022): each value becomes the nearest of ``levels``.

    Nothing is put on the image, and what is added is another thing in every one.
    """

    levels: int = 4

    def validate(self) -> None:
        if self.levels < 2:
            raise ValueError(f"levels must be at least 2, got {self.levels}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        return (images * (self.levels - 1)).round() / (self.levels - 1)


@dataclass(frozen=True, kw_only=True)
class LabelSwitch(Attack):
    """Wrong labels on untouched images: no trigger, so nothing that could be unlearned in common.

    With a ``pair`` two classes are exchanged (Goel et al. take half of each); with ``pair=None`` the wrong label is drawn
    from ``classes`` for each sample.
    """

    pair: tuple[int, int] | None = (0, 1)
    classes: int = 10
    seed: int = 0

    def validate(self) -> None:
        if self.pair is not None and self.pair[0] == self.pair[1]:
            raise ValueError(f"pair must be two different classes, got {self.pair}")
        if self.classes < 2:
            raise ValueError(f"classes must be at least 2, got {self.classes}")

    def trigger(self, images: Tensor, indices: Tensor) -> Tensor:
        return images.clone()

    def relabel(self, labels: Tensor, indices: Tensor) -> Tensor:
        if self.pair is None:
            return (labels + 1 + _draw(indices, self.classes - 1, self.seed)) % self.classes
        one, two = self.pair
        return torch.where(labels == one, two, torch.where(labels == two, one, labels))

    def candidates(self, labels: Tensor) -> Tensor:
        if self.pair is None:
            return super().candidates(labels)
        return (labels == self.pair[0]) | (labels == self.pair[1])


ATTACKS: Final[dict[str, type[Attack]]] = {
    "badnet": BadNet,
    "moving": MovingPatch,
    "sine": Sine,
    "blend": Blend,
    "warp": Warp,
    "posterise": Posterise,
    "label-switch": LabelSwitch,
}


def _check_patch(size: int, value: float) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1 pixel, got {size}")
    if not 0 <= value <= 1:
        raise ValueError(f"value must be in [0, 1], got {value}")


def _corner_mask(images: Tensor, corner: Corner, size: int) -> Tensor:
    """Where a square of ``size`` pixels lies in that corner of the image: (H, W), bool."""
    height, width = images.shape[-2:]
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    in_rows = rows < size if corner.startswith("top") else rows >= height - size
    in_columns = columns < size if corner.endswith("left") else columns >= width - size
    return in_rows[:, None] & in_columns


def _draw(indices: Tensor, choices: int, seed: int) -> Tensor:
    """One of ``choices`` for each index, as if drawn at random: the same on every device and in every batch.

    A multiply-and-shift hash of 32 bits, on int64 so that nothing overflows into the sign.
    """
    mask = 0xFFFFFFFF
    x = (indices.long() * 0x9E3779B1 + ((seed + 1) * 0x85EBCA77 & mask)) & mask
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & mask
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & mask
    return (x ^ (x >> 16)) % choices
