"""Small work on a GPU, recorded once and replayed: launching it kernel by kernel takes longer than doing it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["recorded"]


def recorded(call: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """``call``, as a CUDA graph from the second time on; it must read and write the same memory each time.

    A model that cannot be recorded, because it asks the GPU for a value half way, or whose recording answers otherwise
    than itself, is called as it is. So is everything on other devices.
    """
    if device.type != "cuda":
        return call
    replay: Callable[[], Tensor] | None = None

    def replayed() -> Tensor:
        nonlocal replay
        if replay is None:
            answer = call()
            replay = _recording(call, answer, device)
            return answer
        return replay()

    return replayed


def _recording(call: Callable[[], Tensor], answer: Tensor, device: torch.device) -> Callable[[], Tensor]:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call()  # what libraries set up on a first call in a stream must not become part of the recording
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                found = call()
            graph.replay()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        torch.cuda.synchronize(device)
        return call
    if not torch.equal(found, answer):
        return call

    def replay() -> Tensor:
        graph.replay()
        return found

    return replay
