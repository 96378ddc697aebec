"""The one training loop: victims, retraining and fine-tuning all go through :func:`train`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import fetch
from potion.progress import Progress
from potion.runtime import forked_rng, set_layout

__all__ = ["Recipe", "learning_rate", "train"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train. The defaults are those of the CIFAR-10 victims (FACTS 9 and 11)."""

    iterations: int = 4000
    batch_size: int = 512
    lr: float = 0.025
    momentum: float = 0.9
    weight_decay: float = 5e-4
    channels_last: bool = False

    def __post_init__(self) -> None:
        for name in ("iterations", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.lr <= 0:
            raise ValueError(f"lr must be positive, got {self.lr}")


def learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up over the first 1 % of the iterations, then lr * (1 - t / (1.25 T)) (FACTS 11)."""
    warm_up = max(1, recipe.iterations // 100)
    if step < warm_up:
        return recipe.lr * (step + 1) / warm_up
    return recipe.lr * (1 - step / (1.25 * recipe.iterations))


def train(
    model: nn.Module,
    dataset: Dataset[Any],
    recipe: Recipe,
    *,
    indices: Sequence[int] | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> nn.Module:
    """Train ``model`` in place on the samples ``indices`` of ``dataset`` (default: all); the last iterate is kept."""
    samples = torch.arange(len(dataset)) if indices is None else torch.as_tensor(indices)  # type: ignore[arg-type]
    model.to(device).train()
    set_layout(model, channels_last=recipe.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    with forked_rng(seed), Progress(progress) as bars:
        for step, rows in enumerate(bars.track(_shuffled(samples, recipe, seed), "training", recipe.iterations)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, recipe)
            inputs, labels = fetch(dataset, rows.tolist())
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    set_layout(model, channels_last=False)
    return model.eval()


def _shuffled(samples: Tensor, recipe: Recipe, seed: int) -> Iterator[Tensor]:
    """Index batches for every iteration: epochs in an order that only the seed decides, the short rest dropped."""
    generator = torch.Generator().manual_seed(seed)
    size = min(recipe.batch_size, len(samples))
    done = 0
    while True:
        order = samples[torch.randperm(len(samples), generator=generator)]
        for rows in order.split(size):
            if done == recipe.iterations:
                return
            if len(rows) == size:
                yield rows
                done += 1
