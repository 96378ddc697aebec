"""What every method is given, and what it gives back: one signature for all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from potion.antidote import Antidote
from potion.batches import DatasetBatches, shuffled
from potion.importance import importances
from potion.result import HealResult
from potion.runtime import copied, forked_rng, generator_for
from potion.search import PTN
from potion.training import Recipe, train
from potion.types import Importances, Status

__all__ = ["Method", "Problem", "Repair"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A poisoned model and what its owner has: never the test set, never the whole list of poison.

    ``recipe`` is how the victim was trained and ``new_model`` makes a fresh one like it, for methods that train.
    """

    model: nn.Module
    train_set: Dataset[Any]
    known: list[int]
    recipe: Recipe
    new_model: Callable[[], nn.Module]
    plain_set: Dataset[Any] | None = None
    search: PTN = field(default_factory=PTN)
    antidote: Antidote = field(default_factory=Antidote)
    batch_size: int = 512
    device: torch.device | str = "cpu"
    seed: int = 0
    progress: bool = False
    workers: int = 0
    cache: str | os.PathLike[str] | None = None

    @property
    def size(self) -> int:
        """|S_tr|."""
        return len(self.train_set)  # type: ignore[arg-type]

    @cached_property
    def retained(self) -> list[int]:
        """The indices of S_tr without S_f; undiscovered poison is among them."""
        return sorted(set(range(self.size)) - set(self.known))

    def copied(self) -> nn.Module:
        """A copy of the victim on the device, to be changed."""
        model = copied(self.model).to(self.device)
        model.eval()
        return model

    def trained(self, model: nn.Module, recipe: Recipe, indices: list[int], **more: Any) -> nn.Module:
        """Train ``model`` on some of the training samples, as the seed decides."""
        settings = {
            "seed": self.seed,
            "device": self.device,
            "progress": self.progress,
            "workers": self.workers,
            **more,
        }
        return train(model, settings.pop("dataset", self.train_set), recipe, indices=indices, **settings)

    def retain_importances(self, model: nn.Module, indices: list[int], kind: str) -> Importances:
        """Importances over some of S_tr; of all that is retained they are those of :func:`potion.heal`, draw for draw."""
        return self._importances(
            model, shuffled(self.train_set, indices, generator_for("importances", self.seed)), kind
        )

    def forget_importances(self, model: nn.Module, kind: str) -> Importances:
        """Importances over S_f, those of :func:`potion.heal`: SSD's vary so much with the draw of the augmentation that
        methods which drew differently could not be compared.
        """
        return self._importances(model, self.known, kind)

    def _importances(self, model: nn.Module, order: list[int], kind: str) -> Importances:
        with forked_rng(self.seed):
            batches = DatasetBatches(
                self.train_set, order, self.batch_size, self.workers, self.device, self.seed, part=(0, 1)
            )
            return importances(model, batches, kind)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What a method returns; ``result`` is for those that search: the whole story, with status, trace and importances."""

    model: nn.Module
    result: HealResult | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status | None:
        """How the search ended, where there was one."""
        return None if self.result is None else self.result.status


Method = Callable[[Problem], Repair]
