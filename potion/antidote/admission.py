"""Admission: what the antidote is not for is refused in a sentence, before anything is computed with it."""

from __future__ import annotations

import torch
from torch import Tensor, autocast, nn

from potion.forward import first_logits, logits, placement, told
from potion.runtime import forked_rng, native_bfloat16
from potion.validation import check_labels, check_logits

__all__ = ["check_admission", "takes_bfloat16"]


@torch.no_grad()
def check_admission(victim: nn.Module, images: Tensor, augmented: Tensor, labels: Tensor) -> None:
    """``images`` are samples as they are stored, ``augmented`` as training shows them, ``labels`` those of all samples."""
    if len({p.device for p in victim.parameters()}) > 1:
        raise ValueError(
            "the antidote teaches on one device, but the model is spread over several: take another method"
        )
    if images.dim() != 4:
        shape = tuple(images.shape[1:])
        raise ValueError(f"the antidote is for images (C, H, W), but the samples are {shape}: take another method")
    if not images.is_floating_point():
        raise ValueError(f"train_set yields {told(images.dtype)}: give the antidote images as floats")
    if not images.isfinite().all():
        raise ValueError("train_set holds images with NaN or inf")
    if augmented.shape[1:] != images.shape[1:]:
        sizes = [tuple(each.shape[1:]) for each in (augmented, images)]
        raise ValueError(
            f"train_set yields images {sizes[0]}, unaugmented {sizes[1]}: what the antidote finds in one is put onto "
            "the other, so give both one size"
        )
    others = [told(dtype) for dtype, count in placement(victim)[1].items() if count and dtype != torch.float32]
    if others:
        raise ValueError(
            f"the antidote teaches in float32, but the model has {others[0]} weights: give it model.float()"
        )
    outputs = first_logits(victim, images[:2])
    check_logits(outputs)
    check_labels(labels, outputs.shape[1])


def takes_bfloat16(victim: nn.Module, images: Tensor) -> bool:
    """Whether the model can be asked and taught in bfloat16, on a device where that is faster.

    Some have a step that does not take it, such as writing what a layer gives into a tensor of float32.
    """
    if not native_bfloat16(images.device):
        return False
    tried = images.clone().requires_grad_()
    with forked_rng(0), torch.enable_grad():
        try:
            with autocast(images.device.type, torch.bfloat16):
                outputs = logits(victim, tried).float()
            torch.autograd.grad(outputs.sum(), tried)
        except RuntimeError:
            return False
    return bool(outputs.isfinite().all())
