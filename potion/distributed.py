"""Many processes, one answer: who does which batches, and sums over everybody. In one process it all does nothing.

Two ways to be many. *Replicas*: every process has the whole model and computes the importances of its share of the batches;
the sums are added up. *Shards* (FSDP2 over all processes): no process ever has the whole model; each computes its
share of every batch, FSDP adds the gradients up, and everything after that is done on the piece of each parameter that a
process holds. The processes are those of ``torch.distributed``, which the caller has set up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = [
    "World", "agreed", "all_gathered", "check_parallelism", "failed_together", "global_indices", "is_sharded", "local",
    "own_part", "refreshed", "slices", "summed", "summed_number", "whole", "world",
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
            there = tensor.to(_meeting_place(tensor.device))
            dist.all_reduce(there)
            if there is not tensor:
                tensor.copy_(there)


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


def check_parallelism(model: nn.Module) -> None:
    """Refuse wrappers and layouts that would quietly give wrong sums: better no answer than a wrong one."""
    kinds = {cls.__name__ for module in model.modules() for cls in type(module).__mro__}
    if "DistributedDataParallel" in kinds:
        raise ValueError("model is wrapped in DistributedDataParallel: pass model.module, heal shares the work itself")
    if "FullyShardedDataParallel" in kinds:
        raise ValueError("model is wrapped in the first FSDP: shard it with torch.distributed.fsdp.fully_shard (FSDP2)")
    if not is_sharded(model):
        return
    if "FSDPModule" not in kinds:
        raise ValueError(
            "model is spread over processes in another way than FSDP2's fully_shard, which is not supported"
        )
    for name, p in model.named_parameters():
        layout: Any = p
        if not _is_dtensor(p):
            raise ValueError(
                f"model is sharded in part: wrap the root in fully_shard, too, so that {name!r} is sharded"
            )
        if (
            layout.device_mesh.ndim != 1
            or layout.device_mesh.size() != world().size
            or layout.placements[0].is_replicate()
        ):
            raise ValueError(
                "model must be sharded over all processes, along one dimension (no HSDP, no tensor parallelism)"
            )


def failed_together(error: Exception | None, device: torch.device) -> None:
    """Raise in every process where one has an error, so that nobody waits for it in a collective."""
    failed = summed_number(int(error is not None), device)
    if error is not None:
        raise error
    if failed:
        raise RuntimeError(f"{failed} of {world().size} processes failed; see what they say")


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
        if any(cls.__name__ == "FSDPModule" for cls in type(module).__mro__):
            fsdp: Any = module
            fsdp.reshard()


def slices(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, float]]:
    """The part of every batch that is this process's, and what its mean counts for in the mean over all parts.

    FSDP averages gradients over the processes, so a part of n of the N samples of a batch counts n * processes / N. A
    process without a sample takes part with one that counts nothing, because all must meet in the same collectives.
    """
    rank, size = world()
    for inputs, labels in batches:
        if not len(inputs):
            continue
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
    """Where a collective of the default group wants its tensors: NCCL knows only GPUs, gloo everything."""
    only_gpus = "nccl" in dist.get_backend() and "gloo" not in dist.get_backend()
    return torch.device("cuda", torch.cuda.current_device()) if only_gpus and device.type != "cuda" else device
