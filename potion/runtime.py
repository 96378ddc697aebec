"""Where and how code runs: the device, and random states that come back as they were."""

from __future__ import annotations

import copy
import hashlib
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn

from potion.stale import kept_tensors

__all__ = [
    "Clock",
    "Precision",
    "arithmetic",
    "best_device",
    "copied",
    "forked_rng",
    "generator_for",
    "lies_channels_last",
    "native_bfloat16",
    "plain_arithmetic",
    "reseed",
    "rng_states",
    "seed_for",
    "set_fastest_layout",
    "set_layout",
    "set_rng_states",
    "synchronize",
]


Precision = Literal["float32", "tf32", "bfloat16"]


def best_device() -> torch.device:
    """CUDA where there is one (under ``torchrun`` the process's own), else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        rank = os.environ.get("LOCAL_RANK")
        return torch.device("cuda") if rank is None else torch.device("cuda", int(rank) % torch.cuda.device_count())
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def native_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers itself; where it has to pretend, they are no faster than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
        return any(supported is not None and supported() for supported in asked)
    return False


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock read afterwards tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def set_layout(model: nn.Module, *, channels_last: bool) -> None:
    """Lay the weights of the model's layers for images out in memory one way or the other; their values stay.

    Those of layers for videos have a dimension more, and stay as they are; ``Module.to`` would refuse such a model.
    """
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.to(memory_format=layout)


def set_fastest_layout(model: nn.Module, device: torch.device) -> None:
    """Channels last where that is how convolutions are computed: on GPUs with tensor cores and by oneDNN on a CPU."""
    fast = device.type == "cpu" and torch.backends.mkldnn.is_available()
    if fast or (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)):
        set_layout(model, channels_last=True)


def lies_channels_last(model: nn.Module) -> bool:
    """Whether the weights of some layer for images are laid out channels last, and not both ways at once."""
    return any(
        p.dim() == 4 and not p.is_contiguous() and p.is_contiguous(memory_format=torch.channels_last)
        for p in model.parameters()
    )


def copied(model: nn.Module) -> nn.Module:
    """A deep copy, also of a model that keeps computed tensors, as old-style weight norm and stashed activations are."""
    kept = (value for module in model.modules() for value in kept_tensors(module))
    return copy.deepcopy(model, {id(value): value.detach().clone() for value in kept if not value.is_leaf})


def seed_for(purpose: str, seed: int) -> int:
    """A seed of its own for each purpose: two things drawn from one seed must not be the same permutation."""
    digest = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(purpose: str, seed: int) -> torch.Generator:
    """A generator that starts from :func:`seed_for`."""
    return torch.Generator().manual_seed(seed_for(purpose, seed))


@contextmanager
def arithmetic(precision: Precision | None, device: torch.device) -> Iterator[None]:
    """Compute a block in another precision: ``"float32"`` to the last bit, ``"tf32"`` where a GPU has it, or under
    ``"bfloat16"`` autocast. ``None`` leaves torch as it is set up, which by default means TF32 convolutions on a GPU.
    """
    if precision is None:
        yield
        return
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, or None, got {precision!r}")
    before = [(where, name, getattr(where, name)) for where, name in _tf32_switches()]
    try:
        for where, name, _ in before:
            exact, fast = (False, True) if name == "allow_tf32" else ("ieee", "tf32")
            setattr(where, name, exact if precision == "float32" else fast)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def _tf32_switches() -> list[tuple[Any, str]]:
    """Where torch keeps whether TF32 may be used; newer ones have new names and refuse a mix of old and new."""
    matmul: Any = torch.backends.cuda.matmul
    convolution: Any = torch.backends.cudnn
    if hasattr(matmul, "fp32_precision") and hasattr(convolution, "conv"):
        return [(matmul, "fp32_precision"), (convolution.conv, "fp32_precision")]
    return [(matmul, "allow_tf32"), (convolution, "allow_tf32")]


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Compute in the model's own precision and with gradients possible, whatever the caller has switched on.

    Autocast would also keep casts of weights that have changed since.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def rng_states() -> dict[str, Any]:
    """The random states of torch, numpy and ``random``, as plain lists and tensors that a checkpoint can hold."""
    version, internal, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, list(internal), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
    }


def set_rng_states(states: dict[str, Any]) -> None:
    """Go on from what :func:`rng_states` returned."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"][: torch.cuda.device_count()])
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))


def reseed(seed: int) -> None:
    """Start torch (all devices), numpy and ``random`` from a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def forked_rng(seed: int | None = None) -> Iterator[None]:
    """Run a block on random states of its own: torch (all devices), numpy and ``random``; the caller's come back.

    With a ``seed`` the block starts from it, without one from the caller's states.
    """
    python, numpy = random.getstate(), np.random.get_state()
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if seed is not None:
            reseed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            if mps is not None:
                torch.mps.set_rng_state(mps)


class Clock:
    """Seconds a phase, read when the device has finished."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            synchronize(self.device)
            self.seconds[phase] = time.perf_counter() - begin
