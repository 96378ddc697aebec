"""Calling somebody's model: inputs where and how it wants them, logits out, or a sentence that says what is wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from potion.stale import forget_computed

__all__ = ["first_logits", "logits", "placed", "placement", "returned_logits", "told"]


def placement(model: nn.Module) -> tuple[torch.device, dict[torch.dtype, int]]:
    """The device of the model's first parameter, where its inputs belong, and how many weights it has of each type."""
    device, types = None, Counter[torch.dtype]()
    for p in model.parameters():
        device = device or p.device
        types[p.dtype] += p.numel() if p.is_floating_point() else 0
    if device is None:
        raise ValueError("model has no parameters: there is nothing to repair")
    return device, types


def placed(model: nn.Module, inputs: Tensor) -> Tensor:
    """``inputs`` on the model's device; floats of a type that the model does not have at all become its most common one."""
    device, types = placement(model)
    fits = not inputs.is_floating_point() or inputs.dtype in types
    return inputs.to(device, None if fits else max(types, key=lambda each: types[each]), non_blocking=True)


def returned_logits(outputs: Any) -> Tensor:
    """What a model returned, or its ``logits``, as the models of transformers call them."""
    found = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    if not isinstance(found, Tensor):
        raise TypeError(
            f"model must return a tensor of logits (N, K), or an object with one as its .logits, got "
            f"{type(outputs).__name__}; wrap it in a module that returns only the logits"
        )
    return found


def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """``model(inputs)``, with the weights that it has now; checked to be one row of class scores a sample."""
    forget_computed(model)
    outputs = returned_logits(model(placed(model, inputs)))
    if outputs.dim() != 2 or len(outputs) != len(inputs):
        raise ValueError(f"model must return logits (N, K), got {tuple(outputs.shape)} for {len(inputs)} inputs")
    return outputs


def first_logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """The first call of somebody's model with somebody's data: where it fails, these two do not fit together."""
    try:
        return logits(model, inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"the model fails on a batch of train_set, {tuple(inputs.shape)} of {told(inputs.dtype)}: {reason}"
        ) from error


def told(dtype: torch.dtype) -> str:
    """The name of a type, as people write it."""
    return str(dtype).removeprefix("torch.")
