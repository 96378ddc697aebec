"""Normalisation as the first layer, so that a saved model is complete and a trigger is a trigger in plain pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Normalize"]


class Normalize(nn.Module):
    """(x - mean) / std for each channel of (N, C, H, W) images in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], channels: int = 3) -> None:
        super().__init__()
        if len(mean) != channels or len(std) != channels:
            raise ValueError(f"mean and std need one value for each of the {channels} channels, got {mean} and {std}")
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std
