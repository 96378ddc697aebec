"""``potion bench speed``: what healing costs on the machine at hand, as seconds and as ratios taken in one run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from potion.batches import DatasetBatches, fetch
from potion.bench.growth import grown
from potion.bench.stopwatch import in_turns, median_seconds, peak_memory
from potion.bench.workloads import Workload
from potion.heal import heal
from potion.importance import importances
from potion.provenance import machine
from potion.result import HealResult
from potion.runtime import (
    Precision,
    arithmetic,
    generator_for,
    plain_arithmetic,
    set_fastest_layout,
    synchronize,
)

__all__ = ["measured"]

SHARES: Final = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Of the training set, for how the time grows with it."""
KNOWN: Final = (1, 10, 50, 100, 250, 500, 1000)
"""So much known poison the search is timed with."""
WIDE: Final = 2
"""So many batches are enough to see how the time grows with the weights."""


def measured(
    work: Workload,
    device: torch.device,
    *,
    repeats: int,
    count: int,
    method: str,
    tell: Callable[[str], None],
    precision: Precision | None = None,
    retain_share: float | None = None,
) -> dict[str, Any]:
    """Every figure of one workload; the median of ``repeats`` after a warm-up, things that are compared taken in turns."""
    set_fastest_layout(work.model, device)  # as heal does: what is compared runs in the same one
    poison = work.known(count)
    once = partial(_heal, work, method, precision, retain_share, device)
    tell("healing")
    heals = _heals(work, partial(once, poison), device, repeats)
    tell("importances against a plain pass")
    passes = _passes(work, method, precision, device, repeats)
    tell("searches")
    searches = {count: _search(partial(once, work.known(count))) for count in KNOWN if count <= len(work.poison)}
    tell("memory")
    memory = _memory(work, poison, method, precision, device) if device.type == "cuda" else None
    tell("arithmetic")
    flops, peak = _flops(work, device), _peak_flops(device)
    tell("scaling")
    scaling = _scaling(work, method, precision, device, repeats)
    batches = math.ceil(len(work.train_set) / work.batch_size)
    return {
        "workload": work.name,
        "method": method,
        "precision": precision,
        "retain_share": retain_share,
        "machine": machine(device),
        "repeats": repeats,
        "images": len(work.train_set),
        "known": len(poison),
        "batch_size": work.batch_size,
        "parameters": _weights(work.model),
        **heals,
        **passes,
        "ratios": {
            "heal / plain pass": heals["heal_seconds"] / passes["plain_pass_seconds"],
            "importance pass / plain pass": passes["importance_pass_seconds"] / passes["plain_pass_seconds"],
            "search / importance pass": heals["phases"].get("search", 0.0) / passes["importance_pass_seconds"],
            "achieved / peak FLOP/s": flops * batches / passes["importance_pass_seconds"] / peak,
        },
        "images_per_second": {
            "importances": len(work.train_set) / passes["importance_pass_seconds"],
            "plain pass": len(work.train_set) / passes["plain_pass_seconds"],
        },
        "memory": memory,
        "peak_flops": peak,
        "searches": searches,
        "scaling": scaling,
    }


def _heal(
    work: Workload,
    method: str,
    precision: Precision | None,
    retain_share: float | None,
    device: torch.device,
    poison: list[int],
) -> HealResult:
    return heal(
        work.model,
        work.train_set,
        poison,
        method,
        work.search,
        batch_size=work.batch_size,
        unaugmented=work.train_set.plain(),
        precision=precision,
        retain_share=retain_share,
        device=device,
        progress=False,
    )


def _search(once: Callable[[], HealResult]) -> dict[str, float]:
    """How long the search took, the second time."""
    once()
    result = once()
    return {"steps": len(result.trace), "seconds": result.timings.get("search", 0.0)}


def _heals(work: Workload, once: Callable[[], HealResult], device: torch.device, repeats: int) -> dict[str, Any]:
    results, seconds = [], []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        result = once()
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
        results.append(result)
    phases = {
        phase: statistics.median(each.timings.get(phase, 0.0) for each in results[1:]) for phase in results[0].timings
    }
    steps = len(results[0].trace)
    return {
        "status": results[0].status.value,
        "steps": steps,
        "heal_seconds": statistics.median(seconds[1:]),
        "heal_seconds_all": seconds[1:],
        "phases": phases,
        "steps_per_second": steps / phases["search"] if phases.get("search") else None,
    }


def _passes(
    work: Workload, method: str, precision: Precision | None, device: torch.device, repeats: int
) -> dict[str, Any]:
    batches = _batches(work, len(work.train_set), device)
    estimate, plain = _both(work.model, batches, method, precision)
    ours, theirs = in_turns(estimate, plain, device, repeats)
    return {"importance_pass_seconds": ours, "plain_pass_seconds": theirs}


def _both(
    model: nn.Module, batches: DatasetBatches, method: str, precision: Precision | None
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An importance pass and a plain forward and backward pass over the same batches, in the same mode and precision."""
    model.eval()

    def plain() -> None:
        with plain_arithmetic(), arithmetic(precision, next(model.parameters()).device):
            for inputs, labels in batches:
                model.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(model(inputs), labels).backward()
            model.zero_grad(set_to_none=True)

    return lambda: importances(model, batches, method, precision=precision), plain


def _scaling(
    work: Workload, method: str, precision: Precision | None, device: torch.device, repeats: int
) -> dict[str, Any]:
    """How the importance pass grows with |S_tr| and with the weights, and a step of the search with |S_f|."""
    times = max(1, repeats // 2)
    found: dict[str, Any] = {}
    whole = len(work.train_set) // work.batch_size
    sizes = [work.batch_size * batches for batches in sorted({max(1, round(share * whole)) for share in SHARES})]
    passes = [_both(work.model, _batches(work, size, device), method, precision)[0] for size in sizes]
    seconds = [median_seconds(each, device, times) for each in passes]
    found["training samples"] = grown(sizes, seconds)
    counts = sorted({max(1, round(share * len(work.poison))) for share in SHARES})
    steps = [median_seconds(_inference(work, count, device), device, 3 * times) for count in counts]
    found["known samples"] = grown(counts, steps)
    if work.wider is not None and work.widths:
        models = [work.wider(width) for width in work.widths]
        some = _batches(work, WIDE * work.batch_size, device)
        seconds = [median_seconds(_both(model, some, method, precision)[0], device, times) for model in models]
        found["parameters"] = grown([_weights(model) for model in models], seconds)
    return found


def _inference(work: Workload, count: int, device: torch.device) -> Callable[[], Any]:
    inputs, labels = fetch(work.train_set.plain(), work.known(count), device)
    poison = TensorDataset(inputs, labels)

    @torch.no_grad()
    def look() -> int:
        hits = [work.model(x).argmax(1) == y for x, y in DatasetBatches(poison, range(count), work.batch_size)]
        return int(torch.cat(hits).sum())

    return look


def _batches(work: Workload, count: int, device: torch.device) -> DatasetBatches:
    order = torch.randperm(len(work.train_set), generator=generator_for("speed", 0))[:count].tolist()
    return DatasetBatches(work.train_set, order, work.batch_size, device=device)


def _flops(work: Workload, device: torch.device) -> int:
    """Floating-point operations of the forward and backward pass over one batch."""
    inputs, labels = next(iter(_batches(work, work.batch_size, device)))
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(work.model(inputs), labels).backward()
    work.model.zero_grad(set_to_none=True)
    return int(counter.get_total_flops())


def _weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _peak_flops(device: torch.device) -> float:
    """What a large float32 matrix product reaches here; on a GPU with TF32, as convolutions do by default."""
    size = 8192 if device.type == "cuda" else 2048
    one, two = torch.randn(2, size, size, device=device)
    with arithmetic("tf32", device):
        return 2 * size**3 / median_seconds(lambda: one @ two, device, 5)


def _memory(
    work: Workload, poison: list[int], method: str, precision: Precision | None, device: torch.device
) -> dict[str, float]:
    """Peak GPU memory of a heal whose model comes from the CPU, as a checkpoint does, beside a plain step's."""

    def plain_step() -> None:
        inputs, labels = next(iter(_batches(work, work.batch_size, device)))
        with arithmetic(precision, device):
            nn.functional.cross_entropy(work.model(inputs), labels).backward()

    def drop(p: Tensor) -> None:
        p.grad = None

    weights = sum(p.numel() * p.element_size() for p in work.model.parameters())
    handles = [p.register_post_accumulate_grad_hook(drop) for p in work.model.parameters()]
    activations = peak_memory(plain_step, device)  # a step's memory, of which gradients do not stay
    for handle in handles:
        handle.remove()
    work.model.cpu()
    peak = peak_memory(
        lambda: _heal(work, method, precision, 2 * work.batch_size / len(work.train_set), device, poison), device
    )
    work.model.to(device)
    return {
        "weights": weights,
        "activations": activations,
        "peak": peak,
        "over model and activations, in weights": (peak - weights - activations) / weights,
    }
