"""The words everyone uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from torch import Tensor

__all__ = ["Batches", "Importances", "Status", "Step"]

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


@dataclass(frozen=True, kw_only=True)
class Step:
    """One point of the search: ``selected`` weights have a ratio above ``alpha``; accuracy as a fraction."""

    s: float
    alpha: float
    selected: int
    known_accuracy: float
