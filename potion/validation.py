"""The door: what comes in is checked once, here, and a mistake is answered with what to do about it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from potion.batches import Batch, fetch
from potion.distributed import local
from potion.forward import first_logits
from potion.runtime import forked_rng

__all__ = [
    "check_labels",
    "check_logits",
    "check_same_samples",
    "check_train_set",
    "check_weights",
    "first_look",
    "known_device",
    "known_indices",
    "whole_number",
]

COMPARED: Final = 64
"""So many labels of two sets that should have the same samples are compared."""


def known_indices(known_poison: Iterable[Any], count: int) -> list[int]:
    """The known poison as a list of distinct indices into a training set of ``count`` samples."""
    if isinstance(known_poison, str | bytes) or not isinstance(known_poison, Iterable) or _is_one(known_poison):
        raise TypeError(f"known_poison must be a list of indices into train_set, got {type(known_poison).__name__}")
    if count == 0:
        raise ValueError("train_set is empty")
    indices = [_index(entry) for entry in known_poison]
    if not indices:
        raise ValueError("known_poison is empty: name at least one poisoned sample of train_set")
    seen = set()
    for index in indices:
        if not 0 <= index < count:
            raise ValueError(f"known_poison has index {index}, but train_set has the indices 0 to {count - 1}")
        if index in seen:
            raise ValueError(f"known_poison names sample {index} more than once")
        seen.add(index)
    if len(indices) == count:
        raise ValueError(f"known_poison names all {count} samples of train_set: nothing is left to protect")
    return indices


def _is_one(thing: Any) -> bool:
    """Whether a tensor or an array is a single number, which calls itself iterable."""
    return getattr(thing, "ndim", 1) == 0


def _index(entry: Any) -> int:
    # A bool is an int to Python, but a mask where indices are expected is a mistake.
    if isinstance(entry, bool | np.bool_) or (isinstance(entry, Tensor) and entry.dtype == torch.bool):
        raise TypeError("known_poison must hold indices, not a mask of booleans; numpy.flatnonzero(mask) makes them")
    try:
        return operator.index(entry)
    except TypeError:
        raise TypeError(f"known_poison must hold integers, got {entry!r} ({type(entry).__name__})") from None


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """``value`` as an int, of whatever integer type it is."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return number


def known_device(device: str | torch.device) -> torch.device:
    """The device, if there is such a one here."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"device {str(device)!r} is none that torch knows: give cpu, cuda, cuda:1, mps, ..."
        ) from error
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not here.get(found.type, True):
        raise ValueError(f"device {str(device)!r} was asked for, but there is none here; leave device out to choose")
    return found


def check_train_set(train_set: Any) -> None:
    """Refuse what is not a map-style dataset; a loader has one inside."""
    if isinstance(train_set, DataLoader):
        raise TypeError(
            "train_set must be a dataset, got a DataLoader: pass loader.dataset, and batch_size=loader.batch_size; "
            "known_poison are indices into that dataset"
        )
    if not hasattr(train_set, "__len__") or not hasattr(train_set, "__getitem__"):
        raise TypeError(f"train_set must be a map-style dataset with a length, got {type(train_set).__name__}")


def check_same_samples(train_set: Dataset[Any], plain_set: Dataset[Any], known: Sequence[int], seed: int) -> None:
    """Refuse an unaugmented set that has other labels, or the samples in another order; some are looked at."""
    if plain_set is train_set:
        return
    count = len(train_set)  # type: ignore[arg-type]
    some = [*known[:COMPARED], *range(0, count, max(1, count // COMPARED))]
    with forked_rng(seed):
        labels = [fetch(dataset, some)[1].cpu() for dataset in (train_set, plain_set)]
    wrong = torch.nonzero(labels[0] != labels[1]).flatten().tolist()
    if wrong:
        index, ours, theirs = some[wrong[0]], int(labels[0][wrong[0]]), int(labels[1][wrong[0]])
        raise ValueError(
            f"unaugmented must have the samples of train_set in the same order, but sample {index} is labelled {theirs} "
            f"there, not {ours}"
        )


def check_weights(model: nn.Module) -> None:
    """Refuse a model that has no weights, or weights that are not numbers."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "model is a TorchScript module, traced or scripted, whose weights cannot be worked on: build the model in "
            "Python and load them with model.load_state_dict(scripted.state_dict())"
        )
    if next(model.parameters(), None) is None:
        raise ValueError("model has no parameters: there is nothing to repair")
    for name, p in model.named_parameters():
        if p.is_inference():
            raise ValueError(f"model's parameter {name!r} was made in inference mode: load the model outside of it")
        if not torch.isfinite(local(p)).all():
            raise ValueError(f"model's parameter {name!r} holds NaN or inf: load a sound checkpoint first")


def check_logits(outputs: Tensor) -> None:
    """Refuse class scores that are not numbers."""
    if not torch.isfinite(outputs).all():
        raise ValueError("model returns NaN or inf for the known poison: check its weights and the scale of its inputs")


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse labels that the model has no logit for."""
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise ValueError(
            f"train_set has labels from {int(labels.min())} to {int(labels.max())}, but the model has {classes} logits "
            f"(labels 0 to {classes - 1})"
        )


@torch.no_grad()
def first_look(model: nn.Module, batches: Iterable[Batch]) -> tuple[int, int]:
    """The number of classes and how many samples get their label, after checking outputs and labels."""
    hits = 0
    for inputs, labels in batches:
        outputs = first_logits(model, inputs)
        check_logits(outputs)
        check_labels(labels, outputs.shape[1])
        hits += int((outputs.argmax(1) == labels.to(outputs.device)).sum())
    return outputs.shape[1], hits
