"""Models by name. ``MODELS`` is the whole registry."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from potion.models.normalize import Normalize
from potion.models.resnet9 import resnet9

__all__ = ["MODELS", "Normalize", "resnet9"]

MODELS: dict[str, Callable[..., nn.Module]] = {"resnet9": resnet9}
