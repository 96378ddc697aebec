"""Calling somebody's model: inputs where and how it wants them, logits out, or a sentence that says what is wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["logits", "placement"]


def placement(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and float type of the model's first parameter: where its inputs belong."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise ValueError("model has no parameters: there is nothing to repair")
    return parameter.device, parameter.dtype


def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """``model(inputs)``, checked to be one row of class scores a sample."""
    device, dtype = placement(model)
    outputs: Any = model(inputs.to(device, dtype if inputs.is_floating_point() else None, non_blocking=True))
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"model must return a tensor of logits (N, K), got {type(outputs).__name__}; "
            "wrap it in a module that returns only the logits"
        )
    if outputs.dim() != 2 or len(outputs) != len(inputs):
        raise ValueError(f"model must return logits (N, K), got {tuple(outputs.shape)} for {len(inputs)} inputs")
    return outputs
