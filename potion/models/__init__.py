"""Models by name. ``MODELS`` is the whole registry; ``timm:NAME`` reaches every model of timm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import nn

from potion.models.normalize import Normalize
from potion.models.resnet9 import resnet9
from potion.models.vit import timm_model, vit
from potion.models.wide_resnet import wide_resnet, wide_resnet28x10

__all__ = ["MODELS", "Normalize", "build", "resnet9", "timm_model", "vit", "wide_resnet", "wide_resnet28x10"]

MODELS: Final[dict[str, Callable[..., nn.Module]]] = {
    "resnet9": resnet9,
    "wide_resnet28x10": wide_resnet28x10,
    "vit": vit,
}


def build(name: str, classes: int, **settings: Any) -> nn.Module:
    """A new model over [0, 1] pixels: a name of ``MODELS``, or ``timm:NAME``."""
    if name.startswith("timm:"):
        return timm_model(name.removeprefix("timm:"), classes, **settings)
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; known are {', '.join(MODELS)} and timm:NAME")
    return MODELS[name](classes, **settings)
