"""A dataset, read in batches: the one way samples enter the library.

Any map-style dataset of ``(input, int label)`` will do. One that can build a whole batch at once says so with a method
``get_batch(indices) -> (inputs, labels)`` and is then never read sample by sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

__all__ = ["DatasetBatches", "fetch"]

Batch = tuple[Tensor, Tensor]


class DatasetBatches:
    """Re-iterable batches of the chosen samples, in the order of ``indices``; the last one may be short."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int], batch_size: int, workers: int = 0) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.dataset, self.indices, self.batch_size, self.workers = dataset, list(indices), batch_size, workers

    def __len__(self) -> int:
        return math.ceil(len(self.indices) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        if self.workers:  # decoding in worker processes pays for itself only where samples are built one by one
            subset = Subset(self.dataset, self.indices)
            for batch in DataLoader(subset, self.batch_size, num_workers=self.workers):
                yield _checked(batch)
            return
        for start in range(0, len(self.indices), self.batch_size):
            yield fetch(self.dataset, self.indices[start : start + self.batch_size])


def fetch(dataset: Dataset[Any], indices: Sequence[int]) -> Batch:
    """The samples ``indices`` of ``dataset`` as one ``(inputs, labels)`` batch."""
    while isinstance(dataset, Subset):
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    if hasattr(dataset, "get_batch"):
        return _checked(dataset.get_batch(torch.as_tensor(indices)))
    if isinstance(dataset, TensorDataset):
        rows = torch.as_tensor(indices)
        return _checked([tensor[rows.to(tensor.device)] for tensor in dataset.tensors])
    return _checked(torch.utils.data.default_collate([dataset[i] for i in indices]))


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
    return inputs, labels
