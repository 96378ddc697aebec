"""What SCRUB and Bad Teacher share: the distance between two models' answers."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

__all__ = ["answers", "divergence", "frozen"]


def divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(teacher || student) of softened class probabilities, one value a sample."""
    soft = log_softmax(student.float() / temperature, 1), log_softmax(teacher.float() / temperature, 1)
    return kl_div(*soft, reduction="none", log_target=True).sum(1) * temperature**2


def frozen(model: nn.Module) -> nn.Module:
    """A copy that only answers."""
    return copy.deepcopy(model).eval().requires_grad_(False)


@torch.no_grad()
def answers(teacher: nn.Module, inputs: Tensor) -> Tensor:
    """The teacher's logits."""
    outputs: Tensor = teacher(inputs)
    return outputs
