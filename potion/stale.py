"""What some models compute from their weights and keep, such as the attention biases of LeViT and TinyViT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

__all__ = ["forget_computed", "kept_tensors"]


def forget_computed(model: nn.Module) -> None:
    """Make a model let go of what it has computed from its weights, which may change, or belong to another gradient.

    Modules that keep such things in eval mode drop them where they are put into training mode, so they are, for a moment.
    Others, which may do more in ``train`` than that, are left alone.
    """
    keeping = [module for module in model.modules() if type(module).train is not nn.Module.train and _keeps(module)]
    if not keeping:
        return
    modes = [(module, module.training) for module in model.modules()]
    for module in keeping:
        module.train(True)
        module.train(False)
    for module, mode in modes:
        module.training = mode


def kept_tensors(module: nn.Module) -> Iterator[Tensor]:
    """The tensors that a module has in plain attributes, or in lists or dictionaries there."""
    for name, value in vars(module).items():
        if name not in ("_parameters", "_buffers"):
            yield from (each for each in _members(value) if isinstance(each, Tensor))


def _keeps(module: nn.Module) -> bool:
    return bool(module._non_persistent_buffers_set) or next(kept_tensors(module), None) is not None


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]
