"""Many processes, one answer: who does which batches, and sums over everybody. In one process it all does nothing.

Two ways to be many. *Replicas*: every process has the whole model and computes the importances of its share of the batches;
the sums are added up. *Shards* (FSDP2, any model whose parameters are DTensors): no process ever has the whole model; each
computes its share of every batch, FSDP adds the gradients up, and everything after that is done on the piece of each
parameter that a process holds. The processes are those of ``torch.distributed``, which the caller has set up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = [
    "World", "agreed", "all_gathered", "global_indices", "is_sharded", "local", "own_part", "refreshed", "slices", "summed",
    "summed_number", "whole", "world",
]  # fmt: skip


class World(NamedTuple):
    """One process among all of them."""

    rank: int
    size: int


def world() -> World:
    """Who this process is; alone where nobody has set up ``torch.distributed``."""
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World(0, 1)


def summed(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over all processes."""
    if world().size > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def summed_number(number: int, device: torch.device) -> int:
    """The sum of everybody's number."""
    if world().size == 1:
        return number
    total = torch.tensor([number], dtype=torch.int64, device=_meeting_place(device))
    dist.all_reduce(total)
    return int(total)


def agreed(value: float, device: torch.device) -> float:
    """The first process's value: floats may differ in the last bit from one machine to the next, decisions may not."""
    if world().size == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64, device=_meeting_place(device))
    dist.broadcast(shared, 0)
    return float(shared)


def all_gathered(value: Any) -> list[Any]:
    """Everybody's value, by rank; for small things."""
    if world().size == 1:
        return [value]
    found: list[Any] = [None] * world().size
    dist.all_gather_object(found, value)
    return found


def is_sharded(model: nn.Module) -> bool:
    """Whether this process holds pieces of the model's parameters only; a forward pass may have left some gathered."""
    refreshed(model)
    return any(_is_dtensor(p) for p in model.parameters())


def local(tensor: Tensor) -> Tensor:
    """The piece of a tensor that this process holds, to be read and written in place: mostly all of it."""
    return tensor.detach().to_local() if _is_dtensor(tensor) else tensor.detach()  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; for a sharded one every process must ask at the same time."""
    return tensor.detach().full_tensor() if _is_dtensor(tensor) else tensor.detach()  # type: ignore[attr-defined]


def global_indices(tensor: Tensor, indices: Tensor) -> Tensor:
    """Flat indices into this process's piece of ``tensor`` as flat indices into all of it."""
    if not _is_dtensor(tensor):
        return indices
    offsets = _offsets(tensor)
    places = torch.unravel_index(indices, local(tensor).shape)
    result = torch.zeros_like(indices)
    for place, offset, size in zip(places, offsets, tensor.shape, strict=True):
        result = result * size + place + offset
    return result


def own_part(tensor: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the flat ``indices`` into all of ``tensor`` lie in this process's piece (a mask), and where in it."""
    if not _is_dtensor(tensor):
        return torch.ones_like(indices, dtype=torch.bool), indices
    mine = torch.ones_like(indices, dtype=torch.bool)
    result = torch.zeros_like(indices)
    piece = local(tensor).shape
    for place, offset, size in zip(torch.unravel_index(indices, tensor.shape), _offsets(tensor), piece, strict=True):
        mine &= (place >= offset) & (place < offset + size)
        result = result * size + place - offset
    return mine, result[mine]


def refreshed(model: nn.Module) -> None:
    """Make a sharded model let go of weights that it has gathered: its parameters are then the pieces again."""
    for module in model.modules():
        reshard: Any = getattr(module, "reshard", None)
        if callable(reshard):
            reshard()


def slices(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, float]]:
    """The part of every batch that is this process's, and what its mean counts for in the mean over all parts.

    FSDP averages gradients over the processes, so a part of n of the N samples of a batch counts n * processes / N. A
    process without a sample takes part with one that counts nothing, because all must meet in the same collectives.
    """
    rank, size = world()
    for inputs, labels in batches:
        part = slice(rank, None, size) if rank < len(inputs) else slice(0, 1)
        weight = len(range(rank, len(inputs), size)) * size / len(inputs)
        yield inputs[part], labels[part], weight


def _offsets(tensor: Tensor) -> tuple[int, ...]:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    dtensor: Any = tensor
    return tuple(compute_local_shape_and_global_offset(dtensor.shape, dtensor.device_mesh, dtensor.placements)[1])


def _is_dtensor(tensor: Tensor) -> bool:
    # By name, so that nothing is imported for the many who have no such tensors.
    return type(tensor).__name__ == "DTensor" or any(cls.__name__ == "DTensor" for cls in type(tensor).__mro__)


def _meeting_place(device: torch.device) -> torch.device:
    """Where a collective of the default group wants its tensors."""
    return device if dist.get_backend() == "nccl" else torch.device("cpu")
