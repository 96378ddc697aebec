"""What a model is worth: accuracy without and with the trigger, and how that compares. All scores in percent, 0 to 100."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.attacks import Attack
from potion.batches import DatasetBatches
from potion.forward import logits, placement

__all__ = ["Scores", "accuracy", "damage", "evaluate", "healed", "predict", "wilson"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """``clean_accuracy`` without the trigger; ``clean_label_accuracy``: the true class in spite of it;
    ``attack_success_rate``: the attacker's class because of it, among images of other classes.
    """

    clean_accuracy: float
    clean_label_accuracy: float
    attack_success_rate: float


def evaluate(
    model: nn.Module, test_set: Dataset[Any], attack: Attack, *, batch_size: int = 512, workers: int = 0
) -> Scores:
    """Score ``model`` on clean test images of [0, 1] pixels and on the same images with the trigger on all of them."""
    predicted, truth = predict(model, test_set, batch_size=batch_size, workers=workers)
    fired, _ = predict(model, test_set, attack, batch_size=batch_size, workers=workers)
    wanted = attack.relabel(truth, torch.arange(len(truth)))
    return Scores(
        clean_accuracy=_percent(predicted == truth),
        clean_label_accuracy=_percent(fired == truth),
        attack_success_rate=_percent((fired == wanted)[wanted != truth]),
    )


def accuracy(model: nn.Module, dataset: Dataset[Any], *, batch_size: int = 512) -> float:
    """How often the model gives the label in the data."""
    predicted, labels = predict(model, dataset, batch_size=batch_size)
    return _percent(predicted == labels)


@torch.no_grad()
def predict(
    model: nn.Module, dataset: Dataset[Any], attack: Attack | None = None, *, batch_size: int = 512, workers: int = 0
) -> tuple[Tensor, Tensor]:
    """Predicted classes and the labels in the data, with the trigger pasted on every image where an attack is given.

    ``workers`` are processes that load samples, for datasets that decode files.
    """
    count = len(dataset)  # type: ignore[arg-type]
    if count == 0:
        raise ValueError("the dataset to score on is empty")
    modes = [(module, module.training) for module in model.modules()]
    predicted: list[Tensor] = []
    truth: list[Tensor] = []
    try:
        model.eval()
        for inputs, labels in DatasetBatches(dataset, range(count), batch_size, workers, placement(model)[0]):
            seen = sum(len(batch) for batch in truth)
            indices = torch.arange(seen, seen + len(labels), device=inputs.device)
            shown = inputs if attack is None else attack(inputs, indices)
            predicted.append(logits(model, shown).argmax(1).cpu())
            truth.append(labels.cpu())
    finally:
        for module, mode in modes:
            module.training = mode
    return torch.cat(predicted), torch.cat(truth)


def healed(scores: Scores, retrained: Scores) -> float:
    """Clean-label accuracy under the trigger, in percent of that of a retrain without any poison (FACTS 14)."""
    return 100 * scores.clean_label_accuracy / retrained.clean_label_accuracy


def damage(scores: Scores, victim: Scores) -> float:
    """Points of clean accuracy against the poisoned model; negative where the repair cost some (FACTS 15)."""
    return scores.clean_accuracy - victim.clean_accuracy


def wilson(percent: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval, in percent, of a rate seen in ``count`` trials (95 % by default)."""
    if count < 1:
        raise ValueError(f"count must be at least 1 trial, got {count}")
    p = percent / 100
    middle = (p + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def _percent(hits: Tensor) -> float:
    return 100 * int(hits.sum()) / len(hits) if len(hits) else float("nan")
