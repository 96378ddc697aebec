"""A stopwatch: seconds of calls and the memory they take, read when the device is done."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from potion.runtime import forked_rng, synchronize

__all__ = ["in_turns", "median_seconds", "peak_memory"]


def in_turns(one: Callable[[], Any], two: Callable[[], Any], device: torch.device, repeats: int) -> tuple[float, float]:
    """The medians of both, taken in turns after a warm-up: what disturbs one disturbs the other."""
    _seconds(one, device), _seconds(two, device)
    times = [(_seconds(one, device), _seconds(two, device)) for _ in range(repeats)]
    return statistics.median(first for first, _ in times), statistics.median(second for _, second in times)


def median_seconds(call: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """The median, after a warm-up."""
    _seconds(call, device)
    return statistics.median(_seconds(call, device) for _ in range(repeats))


def _seconds(call: Callable[[], Any], device: torch.device) -> float:
    synchronize(device)
    begin = time.perf_counter()
    with forked_rng(0):
        call()
        synchronize(device)
        return time.perf_counter() - begin


def peak_memory(call: Callable[[], Any], device: torch.device) -> int:
    """The most memory that was taken during a call beyond what was taken before."""
    gc.collect()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    return torch.cuda.max_memory_allocated(device) - before
