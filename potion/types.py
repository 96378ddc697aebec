"""The words everyone uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from torch import Tensor

__all__ = ["Batches", "Importances", "Look", "Status", "Step"]

Importances = dict[str, Tensor]
"""One non-negative importance a weight, by parameter name."""


class Batches(Protocol):
    """Anything that yields ``(inputs, labels)`` each time it is iterated: a DataLoader, a list of pairs, ..."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


class Status(StrEnum):
    """How a search ended. Only ``HEALED`` changes weights."""

    HEALED = "healed"
    SATURATED = "saturated"
    NOT_LEARNED = "not_learned"
    EXHAUSTED = "exhausted"
    GUARDED = "guarded"
    NOT_FOUND = "not_found"


class Look(NamedTuple):
    """What a model does to the known poison, and to trusted samples where these are watched."""

    known_accuracy: float
    trusted_accuracy: float | None = None
    known_probability: float | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One point of the search: ``selected`` weights have a ratio above ``alpha``; accuracies are fractions.

    Where trusted samples are watched (``PTN(guard=...)``, ``PTN(stop="trusted")``), their accuracy and the mean probability
    that the known poison gets its poisoned label are there too.
    """

    s: float
    alpha: float
    selected: int
    known_accuracy: float
    trusted_accuracy: float | None = None
    known_probability: float | None = None
