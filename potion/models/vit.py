"""Vision transformers, and any other model that timm knows (extra ``vit``)."""

from __future__ import annotations

import difflib
import os
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from potion.errors import told
from potion.models.normalize import Normalize

__all__ = ["imported_timm", "near_names", "timm_model", "vit"]

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
    timm = imported_timm()
    if not timm.is_model(name.split(".", maxsplit=1)[0]):
        raise ValueError(f"timm has no model {name!r}{near_names(name, timm.list_models())}")
    model: Any = timm.create_model(name, pretrained=pretrained, **settings)
    if weights is not None:
        _load_strictly(model, weights)
    model.reset_classifier(classes)
    statistics = model.pretrained_cfg
    return nn.Sequential(Normalize(statistics["mean"], statistics["std"], len(statistics["mean"])), model)


def imported_timm() -> Any:
    """timm, or an ``ImportError`` that says why not; it fails in many ways beside a torchvision of another build."""
    try:
        import timm
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            raise ModuleNotFoundError("timm models need the extra 'vit': pip install 'potion[vit]'") from None
        builds = "; torch and torchvision are of different builds: install both from the same place"
        raise ImportError(
            f"timm could not be imported: {told(error)}{builds if 'torchvision::' in str(error) else ''}"
        ) from error
    return timm


def near_names(name: str, names: list[str]) -> str:
    """The end of a sentence about a name that is not among ``names``."""
    close = difflib.get_close_matches(name, names, 5)
    return f"; some with a similar name: {', '.join(close)}" if close else ""


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
