"""A dataset, read in batches: the one way samples enter the library.

Any map-style dataset of ``(input, int label)`` will do. Two optional sets of methods make one fast:

- ``get_batch(indices) -> (inputs, labels)`` builds a whole batch at once.
- ``raw(indices) -> (bytes, labels)`` and ``prepare(bytes, indices) -> inputs`` split that in two: the first part may run
  in a worker process and ships uint8 images, the second runs on the device that computes.

``cheap_order(generator)`` returns all indices in an order that is random and cheap to read, for sets that stream from
disk, or ``None`` where any order is as good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

__all__ = ["Batch", "DatasetBatches", "fetch", "shuffled", "stream"]

Batch = tuple[Tensor, Tensor]
Device = torch.device | str | None


class DatasetBatches:
    """Re-iterable batches of the chosen samples, in the order of ``indices``; the last one may be short."""

    def __init__(
        self, dataset: Dataset[Any], indices: Sequence[int], batch_size: int, workers: int = 0, device: Device = None
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if workers < 0:
            raise ValueError(f"workers must be 0 or more processes, got {workers}")
        self.dataset, self.indices, self.batch_size = dataset, list(indices), batch_size
        self.workers, self.device = workers, device

    def __len__(self) -> int:
        return math.ceil(len(self.indices) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        starts = range(0, len(self.indices), self.batch_size)
        rows = [self.indices[start : start + self.batch_size] for start in starts]
        return stream(self.dataset, rows, workers=self.workers, device=self.device)


def stream(
    dataset: Dataset[Any], rows: Iterable[Sequence[int]], *, workers: int = 0, device: Device = None
) -> Iterator[Batch]:
    """One batch for each list of indices; with ``workers``, processes load the next ones meanwhile."""
    if workers == 0:
        for indices in rows:
            yield fetch(dataset, indices, device)
        return
    loader = DataLoader(_Loading(dataset), sampler=rows, batch_size=None, num_workers=workers)
    for loaded, indices in loader:
        yield _finish(dataset, loaded, indices, device)


def fetch(dataset: Dataset[Any], indices: Sequence[int], device: Device = None) -> Batch:
    """The samples ``indices`` of ``dataset`` as one ``(inputs, labels)`` batch."""
    return _finish(dataset, _load(dataset, indices), indices, device)


def shuffled(dataset: Dataset[Any], indices: Sequence[int], generator: torch.Generator) -> list[int]:
    """The samples ``indices`` in an order that the generator decides."""
    order = dataset.cheap_order(generator) if hasattr(dataset, "cheap_order") else None
    if order is not None:
        wanted = set(indices)
        return [index for index in order if index in wanted]
    return [indices[place] for place in torch.randperm(len(indices), generator=generator).tolist()]


class _Loading(Dataset[Any]):
    """What a worker process does for a batch."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, indices: Any) -> Any:
        return _load(self.dataset, indices), indices


def _load(dataset: Dataset[Any], indices: Sequence[int]) -> Any:
    dataset, indices = _unwrapped(dataset, indices)
    if hasattr(dataset, "raw"):
        return dataset.raw(torch.as_tensor(indices))
    if hasattr(dataset, "get_batch"):
        return dataset.get_batch(torch.as_tensor(indices))
    if isinstance(dataset, TensorDataset):
        rows = torch.as_tensor(indices)
        return [tensor[rows.to(tensor.device)] for tensor in dataset.tensors]
    return default_collate([dataset[index] for index in indices])


def _finish(dataset: Dataset[Any], loaded: Any, indices: Sequence[int], device: Device) -> Batch:
    inputs, labels = _checked(loaded)
    if device is not None:
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
    dataset, indices = _unwrapped(dataset, indices)
    if hasattr(dataset, "prepare"):
        inputs = dataset.prepare(inputs, torch.as_tensor(indices).to(inputs.device, non_blocking=True))
    return inputs, labels


def _unwrapped(dataset: Dataset[Any], indices: Sequence[int]) -> tuple[Dataset[Any], Sequence[int]]:
    while isinstance(dataset, Subset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def _checked(batch: Any) -> Batch:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise TypeError("train_set must yield (input, label) pairs; wrap it in a Dataset that returns just these two")
    inputs, labels = batch
    if not isinstance(inputs, Tensor):
        raise TypeError(
            f"train_set must yield tensors as inputs, got {type(inputs).__name__}; add a ToTensor transform"
        )
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dim() != 1:
        raise TypeError("train_set must yield one integer label a sample")
    return inputs, labels.long()
