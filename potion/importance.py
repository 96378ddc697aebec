"""How much each weight matters for some data: SSD (Eq. 1), LF (Eq. 4) and XLF (Eq. 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from potion.distributed import is_sharded, local, refreshed, slices
from potion.forward import logits, placed, placement, returned_logits
from potion.runtime import Precision, arithmetic, forked_rng, plain_arithmetic
from potion.stale import forget_computed
from potion.types import Batches, Importances

__all__ = ["KINDS", "averaged", "importances", "summed_importances"]

EXPONENTS: Final = {"xlf": 1.0, "lf": 2.0}
KINDS: Final = (*EXPONENTS, "ssd")

Objective = Callable[[Tensor, Tensor], Tensor]
"""(logits, labels) -> one value a sample; its gradient tells the importance."""

SAMPLE_GRADIENTS: Final = 2**27
"""Gradient values held at once in the exact per-sample mode (512 MiB of float32)."""


def importances(
    model: nn.Module,
    batches: Batches,
    kind: str = "xlf",
    *,
    exponent: float | None = None,
    per_sample: bool = False,
    precision: Precision | None = None,
) -> Importances:
    r"""Importance of every weight of ``model`` for the data in ``batches``.

    =========  ==============================================================  ===================================
    kind       :math:`\Omega_i`, a mean over the data                          source
    =========  ==============================================================  ===================================
    ``"ssd"``  :math:`(\partial\, CE(f(x), y) / \partial\theta_i)^2`           Eq. (1), Foster et al., SSD
    ``"lf"``   :math:`|\partial\, \lVert f(x)\rVert_2^2 / \partial\theta_i|`   Eq. (4), Foster et al., loss-free SSD
    ``"xlf"``  :math:`|\partial\, \lVert f(x)\rVert_2 / \partial\theta_i|`     Eq. (5), Schoepf et al., Potion
    =========  ==============================================================  ===================================

    ``precision`` computes the gradients in another one than torch is set up for (:func:`potion.runtime.arithmetic`).
    ``exponent`` puts another w in the place of XLF's 1 or LF's 2. The published numbers take the gradient of the mean over
    a batch and average its magnitude over the batches, the short last one counting as one (FACTS 7): so does this, and
    the result depends on the batch size. ``per_sample=True`` is the printed form, a mean over samples; it costs several
    times as much.

    The keys are those of ``model.named_parameters()``: tied weights appear once; frozen weights, and weights that the
    output does not depend on, are 0. A model frozen altogether is taken for a deployed one: all of it counts.
    Values are float32 (float64 for a float64 model) on the parameter's device. They are added up in float64, so that the
    order of the batches, and how many processes share them, does not show; each gradient is added and freed while the
    backward pass goes on, so there is never a second copy of the weights for it. The gradients of float16 weights may
    underflow before they are added up, those of bfloat16 weights do not. The model runs in eval mode and comes
    back as it was: modes, gradients, ``requires_grad``, buffers and random states.
    """
    totals, terms = summed_importances(
        model, batches, kind, exponent=exponent, per_sample=per_sample, precision=precision
    )
    return averaged(model, totals, terms, kind)


def summed_importances(
    model: nn.Module,
    batches: Batches,
    kind: str,
    *,
    exponent: float | None = None,
    per_sample: bool = False,
    precision: Precision | None = None,
) -> tuple[Importances, int]:
    """What :func:`importances` is the mean of, in float64, and the number of terms: sums of several processes add up.

    Of a sharded model each process gets the sums of its own pieces, and all must be given the same batches.
    """
    objective = _objective(kind, exponent)
    placement(model)  # a model without parameters is refused here
    sharded = is_sharded(model)
    totals = {name: torch.zeros_like(local(p), dtype=_widest(p)) for name, p in model.named_parameters()}
    terms = 0
    with _borrowed(model) as weights, arithmetic(precision, placement(model)[0]):
        running = _Sum(model, weights, totals, objective, torch.square_ if kind == "ssd" else torch.abs_)
        if sharded:
            if per_sample:
                raise ValueError("per_sample importances of a sharded model: FSDP has no gradient for a single sample")
            with running.listening():
                for inputs, labels, weight in slices(batches):
                    terms += running.add_part(inputs, labels.long(), weight)
        else:
            add = running.add_samples if per_sample else running.add_batch_mean
            with running.listening():
                for inputs, labels in batches:
                    if len(inputs):
                        terms += add(inputs, labels.long())
    return totals, terms


def averaged(model: nn.Module, totals: Importances, terms: int, kind: str) -> Importances:
    """Sums as importances; ``totals`` is used up."""
    if terms == 0:
        raise ValueError("batches is empty: importances need at least one sample")
    refreshed(model)
    found = {name: totals.pop(name).div_(terms).to(_wide(p)) for name, p in model.named_parameters()}
    _check_finite(found, kind)
    return found


def _check_finite(found: Importances, kind: str) -> None:
    """Refuse importances that are not numbers, asking the device once for all of them."""
    flags = [torch.isfinite(value).all() for value in found.values()]
    sound = torch.stack([flag.to(flags[0].device, non_blocking=True) for flag in flags]).cpu()
    if not sound.all():
        name = list(found)[int(sound.int().argmin())]
        raise ValueError(
            f"the {kind} importance of {name!r} is not finite: "
            "the model returned NaN or inf, or a label lies outside its logits"
        )


def _objective(kind: str, exponent: float | None) -> Objective:
    if kind not in KINDS:
        raise ValueError(f"unknown importance {kind!r}; known are {', '.join(KINDS)}")
    if kind == "ssd":
        if exponent is not None:
            raise ValueError("exponent belongs to the output norm of xlf and lf; ssd has none")
        return _cross_entropy
    w = EXPONENTS[kind] if exponent is None else exponent
    if not isinstance(w, float | int) or not (math.isfinite(w) and w > 0):
        raise ValueError(f"exponent must be a positive number, got {exponent}")
    return lambda outputs, labels: torch.linalg.vector_norm(outputs.to(_wide(outputs)), dim=1).pow(w)


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy a sample; a label that does not exist makes it and its gradient NaN (a GPU would abort instead)."""
    inside = (labels >= 0) & (labels < outputs.shape[1])
    losses = nn.functional.cross_entropy(outputs.to(_wide(outputs)), labels.where(inside, 0), reduction="none")
    return losses * torch.where(inside, 1.0, math.nan)


class _Sum(NamedTuple):
    """Gradient magnitudes of ``weights``, added up in ``totals``; ``magnitude`` works in place."""

    model: nn.Module
    weights: dict[str, nn.Parameter]
    totals: Importances
    objective: Objective
    magnitude: Callable[[Tensor], Tensor]

    def add_batch_mean(self, inputs: Tensor, labels: Tensor) -> int:
        """Add the magnitude of the gradient of the batch's mean: one term."""
        outputs = logits(self.model, inputs)
        value = self.objective(outputs, labels.to(outputs.device, non_blocking=True)).mean()
        if not value.requires_grad:
            raise ValueError("the model's output does not depend on its weights: is it detached inside the model?")
        value.backward(inputs=list(self.weights.values()))
        return 1

    def add_part(self, inputs: Tensor, labels: Tensor, weight: float) -> int:
        """Add this process's pieces of the gradient of a batch's mean, of which the processes have a part each."""
        outputs = logits(self.model, inputs)
        (self.objective(outputs, labels.to(outputs.device, non_blocking=True)).mean() * weight).backward()
        return 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While gradients are taken and freed as soon as the backward pass has them."""
        handles = [p.register_post_accumulate_grad_hook(partial(self._take, name)) for name, p in self.weights.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _take(self, name: str, p: Tensor) -> None:
        gradient, p.grad = p.grad, None
        assert gradient is not None
        if hasattr(gradient, "to_local") and gradient.device.type == "cpu" and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()  # FSDP may still be bringing it from the GPU
        dense = gradient.to_dense() if gradient.is_sparse else local(gradient)
        self.totals[name].add_(self.magnitude(dense.to(_wide(dense))))

    def add_samples(self, inputs: Tensor, labels: Tensor) -> int:
        """Add the magnitude of every sample's own gradient: one term a sample."""

        def value(weights: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
            forget_computed(self.model)
            outputs = returned_logits(functional_call(self.model, weights, sample[None]))
            return self.objective(outputs, label[None]).sum()

        inputs = placed(self.model, inputs)
        logits(self.model, inputs[:1])  # the checks, in words, before the transforms hide what went wrong
        detached = {name: p.detach() for name, p in self.weights.items()}
        chunk = max(1, SAMPLE_GRADIENTS // sum(p.numel() for p in self.weights.values()))
        gradients_of = vmap(grad(value), in_dims=(None, 0, 0), randomness="different")
        for some, some_labels in zip(inputs.split(chunk), labels.to(inputs.device).split(chunk), strict=True):
            try:
                with sdpa_kernel(SDPBackend.MATH):  # the attention that vmap knows how to batch
                    found = gradients_of(detached, some, some_labels)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # a model that vmap cannot follow, as one whose path depends on the data
                for sample, label in zip(some.split(1), some_labels.split(1), strict=True):
                    self.add_batch_mean(sample, label)
                continue
            for name, gradients in found.items():
                self.totals[name].add_(self.magnitude(gradients.to(_wide(gradients))).sum(0, dtype=_widest(gradients)))
        return len(inputs)


@contextmanager
def _borrowed(model: nn.Module) -> Iterator[dict[str, nn.Parameter]]:
    """The model in eval mode with gradients on, and the weights that count; everything comes back as it was."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    gradients = [(p, p.grad, p._post_accumulate_grad_hooks) for p in model.parameters()]
    recurrent = [(module, module.dropout) for module in model.modules() if isinstance(module, nn.RNNBase)]
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    frozen = {} if weights else {name: p for name, p in model.named_parameters() if p.is_floating_point()}
    try:
        for p, _, _ in gradients:  # an optimizer that steps in the backward pass must not step now
            p.grad, p._post_accumulate_grad_hooks = None, None  # type: ignore[assignment]
        for p in frozen.values():
            p.requires_grad_(True)
        model.eval()
        # cuDNN has gradients of these in training mode alone. Without dropout that is the same.
        for layers, _ in recurrent:
            layers.training, layers.dropout = True, 0.0
        with plain_arithmetic(), forked_rng(), torch.enable_grad():
            yield weights or frozen
    finally:
        for p in frozen.values():
            p.requires_grad_(False)
        for p, gradient, hooks in gradients:
            p.grad, p._post_accumulate_grad_hooks = gradient, hooks
        for module, mode in modes:
            module.training = mode
        for layers, dropout in recurrent:
            layers.dropout = dropout
        forget_computed(model)
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def _wide(tensor: Tensor) -> torch.dtype:
    """The type of an importance: float64 stays, everything else is float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _widest(tensor: Tensor) -> torch.dtype:
    """The type to add up in: float64, where the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64
