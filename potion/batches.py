"""A dataset, read in batches: the one way samples enter the library.

Any map-style dataset of ``(input, int label)`` will do. One that has a method ``get_batch(indices) -> (inputs, labels)``
builds whole batches at once; the package's own image sets go further, as :class:`TwoStage`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

from potion.runtime import reseed, seed_for

__all__ = ["Batch", "DatasetBatches", "Overlay", "TwoStage", "fetch", "labels_of", "shuffled", "stream"]

NEAR: Final = 1024
"""Samples that stand no farther from each other than this in a cheap order were read from disk together, or nearly so."""

Batch = tuple[Tensor, Tensor]
Device = torch.device | str | None


class TwoStage(Dataset[tuple[Tensor, int]], ABC):
    """A dataset whose batches are made in two stages, so that worker processes ship bytes and the device does the rest."""

    @abstractmethod
    def raw(self, indices: Tensor) -> Batch:
        """Stage one, perhaps in a worker process: uint8 images (N, C, H, W) and labels."""

    @abstractmethod
    def prepare(self, images: Tensor, indices: Tensor) -> Tensor:
        """Stage two, on the device that computes: what the model sees. ``indices`` stay on the CPU."""

    def cheap_order(self, generator: torch.Generator) -> list[int] | None:
        """All indices in an order that is random and cheap to read; ``None`` where any order is as good."""
        return None

    def get_batch(self, indices: Tensor) -> Batch:
        """Both stages, where the images are."""
        images, labels = self.raw(indices)
        return self.prepare(images, indices.cpu()), labels

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        inputs, labels = self.get_batch(torch.tensor([index]))
        return inputs[0], int(labels[0])


class Overlay(Dataset[tuple[Tensor, int]], ABC):
    """``below`` with its batches changed on the device; what loads them, perhaps in another process, is not concerned."""

    below: Dataset[Any]

    @abstractmethod
    def changed(self, inputs: Tensor, labels: Tensor, indices: Sequence[int]) -> Batch:
        """A batch of ``below``, on the device, as it is to be seen."""

    def __len__(self) -> int:
        return len(self.below)  # type: ignore[arg-type]


class DatasetBatches:
    """Re-iterable batches of the chosen samples, in the order of ``indices``; the last one may be short.

    With ``part=(k, n)`` only batches k, k + n, k + 2 n, ... of them, each augmented from a random state of its own, so that
    n processes together see exactly what one would with ``part=(0, 1)``. That sets the global random states: use it in
    :func:`potion.runtime.forked_rng`.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        indices: Sequence[int],
        batch_size: int,
        workers: int = 0,
        device: Device = None,
        seed: int = 0,
        part: tuple[int, int] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if workers < 0:
            raise ValueError(f"workers must be 0 or more processes, got {workers}")
        self.dataset, self.indices, self.batch_size = dataset, list(indices), batch_size
        self.workers, self.device, self.seed = workers, device, seed
        count = math.ceil(len(self.indices) / batch_size)
        self._numbers = range(count) if part is None else range(part[0], count, part[1])
        self._own_randomness = part is not None

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Batch]:
        rows = [self.indices[k * self.batch_size : (k + 1) * self.batch_size] for k in self._numbers]
        batches = stream(self.dataset, rows, workers=self.workers, device=self.device, seed=self.seed)
        return self._reseeded(batches) if self._own_randomness else batches

    def _reseeded(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for number in self._numbers:
            reseed(seed_for(f"batch {number}", self.seed))
            yield next(batches)


def stream(
    dataset: Dataset[Any], rows: Iterable[Sequence[int]], *, workers: int = 0, device: Device = None, seed: int = 0
) -> Iterator[Batch]:
    """One batch for each list of indices; with ``workers``, processes load the next ones meanwhile.

    ``seed`` is for what a dataset draws inside a worker; the random state here is not touched by having workers.
    """
    if workers == 0:
        for indices in rows:
            yield fetch(dataset, indices, device)
        return
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        _Loading(_below(dataset)), sampler=rows, batch_size=None, num_workers=workers, generator=generator
    )
    for loaded, indices in loader:
        yield _finish(dataset, loaded, indices, device)


def fetch(dataset: Dataset[Any], indices: Sequence[int], device: Device = None) -> Batch:
    """The samples ``indices`` of ``dataset`` as one ``(inputs, labels)`` batch."""
    return _finish(dataset, _load(dataset, indices), indices, device)


def labels_of(dataset: Dataset[Any], batch_size: int = 1024) -> Tensor:
    """All labels of a dataset, on the CPU; where it does not keep them at hand, every sample is read once."""
    count = len(dataset)  # type: ignore[arg-type]
    rows = range(count)
    inner, indices = _unwrapped(dataset, rows)
    labels = None
    if _plain_tensors(inner):
        labels = inner.tensors[1] if len(inner.tensors) == 2 else None
    elif isinstance(inner, TwoStage):
        labels = getattr(inner, "labels", None)
    if isinstance(labels, Tensor) and labels.dim() == 1 and not labels.is_floating_point():
        return labels.cpu().long()[torch.as_tensor(indices)]
    chunks = [rows[begin : begin + batch_size] for begin in rows[::batch_size]]
    return torch.cat([fetch(dataset, list(chunk))[1].cpu() for chunk in chunks])


def shuffled(dataset: Dataset[Any], indices: Sequence[int], generator: torch.Generator) -> list[int]:
    """The samples ``indices`` in an order that the generator decides."""
    dataset = _below(dataset)
    if isinstance(dataset, TwoStage) and (order := dataset.cheap_order(generator)) is not None:
        return _repeated(order, Counter(indices), generator)
    return [indices[place] for place in torch.randperm(len(indices), generator=generator).tolist()]


def _repeated(order: Sequence[int], times: Mapping[int, int], generator: torch.Generator) -> list[int]:
    """Samples in a cheap order, each as often as asked; copies of one stand around it, not in one batch."""
    rows, counts = torch.tensor(order), torch.tensor([times[index] for index in order])
    places = torch.arange(len(order)).repeat_interleave(counts)
    copies = torch.cat([torch.zeros(1, dtype=torch.bool), places[1:] == places[:-1]])[: len(places)]
    away = NEAR * (2 * torch.rand(len(places), generator=generator) - 1)
    moved = (places + away).abs()  # reflected at both ends
    moved = len(order) - (len(order) - moved).abs()
    return rows[places[torch.where(copies, moved, places).argsort(stable=True)]].tolist()


class _Loading(Dataset[Any]):
    """What a worker process does for a batch."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, indices: Any) -> Any:
        return _load(self.dataset, indices), indices


def _load(dataset: Dataset[Any], indices: Sequence[int]) -> Any:
    dataset, indices = _unwrapped(dataset, indices)
    if isinstance(dataset, Overlay):
        return _load(_below(dataset), indices)
    rows = torch.as_tensor(indices)
    if isinstance(dataset, TwoStage):
        return dataset.raw(rows)
    if callable(getattr(type(dataset), "get_batch", None)):
        return dataset.get_batch(rows)  # type: ignore[attr-defined]
    if _plain_tensors(dataset):
        return [tensor[rows.to(tensor.device)] for tensor in dataset.tensors]
    samples = [dataset[index] for index in indices]
    if samples and isinstance(samples[0], Mapping):
        raise TypeError(
            f"train_set must yield (input, label) pairs, got a {type(samples[0]).__name__} with {', '.join(samples[0])}; a "
            "Hugging Face dataset with image and label becomes one: "
            "potion.data.ImageSet.decoded(potion.data.HubRows(dataset, 'its name'))"
        )
    try:
        return default_collate(samples)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            "train_set must yield (tensor, int) pairs with tensors of one shape (add transforms such as ToTensor and "
            f"Resize): {str(error).splitlines()[0]}"
        ) from error


def _plain_tensors(dataset: Dataset[Any]) -> TypeGuard[TensorDataset]:
    """Whether its tensors are what it yields: a subclass may change samples on the way, poison them for instance."""
    return isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__


def _finish(dataset: Dataset[Any], loaded: Any, indices: Sequence[int], device: Device) -> Batch:
    dataset, indices = _unwrapped(dataset, indices)
    if isinstance(dataset, Overlay):
        return dataset.changed(*_finish(dataset.below, loaded, indices, device), indices)
    inputs, labels = _checked(loaded)
    if device is not None:
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
    if isinstance(dataset, TwoStage):
        inputs = dataset.prepare(inputs, torch.as_tensor(indices).cpu())
    return inputs.contiguous(), labels  # as a DataLoader gives them, which a model that calls .view counts on


def _below(dataset: Dataset[Any]) -> Dataset[Any]:
    """What is under all overlays."""
    while isinstance(dataset, Overlay):
        dataset = dataset.below
    return dataset


def _unwrapped(dataset: Dataset[Any], indices: Sequence[int]) -> tuple[Dataset[Any], Sequence[int]]:
    while isinstance(dataset, Subset) and type(dataset).__getitem__ is Subset.__getitem__:
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
        found = f"{labels.dtype} {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(
            f"train_set must yield one integer label a sample, got {found} for a batch; one-hot labels become integers "
            "with argmax, floats with int"
        )
    return inputs, labels.long()
