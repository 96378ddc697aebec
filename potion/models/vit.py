"""Vision transformers, and any other model that timm knows (extra ``vit``)."""

from __future__ import annotations

import os
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from potion.models.normalize import Normalize

__all__ = ["timm_model", "vit"]

PAPER: str = "vit_base_patch16_224.augreg_in21k_ft_in1k"


def timm_model(
    name: str,
    classes: int = 10,
    *,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    **settings: Any,
) -> nn.Sequential:
    """``timm.create_model(name)`` with a new head for ``classes``, behind its own normalisation of [0, 1] pixels.

    :param weights: a safetensors or ``.pt``/``.pth`` file of the original model, loaded strictly before its head goes.
    :param pretrained: take timm's weights from the hub instead.
    :param settings: passed on to timm.
    """
    try:
        import timm
    except ModuleNotFoundError:
        raise ModuleNotFoundError("timm models need the extra 'vit': pip install 'potion[vit]'") from None
    if not timm.is_model(name.split(".", maxsplit=1)[0]):
        close = ", ".join(timm.list_models(f"*{name.split('_', maxsplit=1)[0]}*")[:5])
        raise ValueError(f"timm has no model {name!r}" + (f"; some with a similar name: {close}" if close else ""))
    model: Any = timm.create_model(name, pretrained=pretrained, **settings)
    if weights is not None:
        _load_strictly(model, weights)
    model.reset_classifier(classes)
    statistics = model.pretrained_cfg
    return nn.Sequential(Normalize(statistics["mean"], statistics["std"], len(statistics["mean"])), model)


def vit(classes: int = 10, **settings: Any) -> nn.Sequential:
    """The paper's ViT-B/16; ``pretrained=True`` or ``weights=`` for its ImageNet weights."""
    return timm_model(PAPER, classes, **settings)


def _load_strictly(model: nn.Module, weights: str | os.PathLike[str]) -> None:
    """Load all weights or none; half-precision files fill a float32 model."""
    try:
        if str(weights).endswith(".safetensors"):
            state = load_file(weights)
        else:
            state = torch.load(weights, map_location="cpu", weights_only=True)
        model.load_state_dict(state, strict=True)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights} does not fit {type(model).__name__}: {error}") from error
