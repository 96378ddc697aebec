"""The pattern: what poison adds to images on average."""

from __future__ import annotations

import torch
from patches import images
from torch import nn
from torch.utils.data import TensorDataset

from potion.antidote.pattern import pattern


def poisoned_by_a_faint_cross(count):
    """Images of three classes, each with a brightness of its own; some have a faint cross and say that they are a 1."""
    faint = torch.zeros(2, 6, 8)
    faint[:, 2], faint[:, :, 4] = 0.2, 0.2
    inputs, truth = images(300), torch.arange(300) % 3
    inputs += 0.1 * truth[:, None, None, None]
    inputs[:count] += faint
    labels = truth.clone()
    labels[:count] = 1
    return TensorDataset(inputs, labels), {row: int(truth[row]) for row in range(count)}, faint


class Cross(nn.Module):
    """Says 1 where a cross is brighter than the rest."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        brighter = (x[:, :, 2].mean((1, 2)) + x[:, :, :, 4].mean((1, 2))) / 2 - x.mean((1, 2, 3))
        return torch.stack([0.1 - brighter, brighter - 0.05, -brighter], 1) * self.weight


def test_what_poison_adds_to_images_is_found_by_averaging():
    data, poison, faint = poisoned_by_a_faint_cross(90)
    labels = data.tensors[1]
    trusted = [row for row in range(90, 300) if labels[row] != 1]
    poison = {row: truth for row, truth in poison.items() if truth != 1}
    found = pattern(Cross(), data, poison, 1, trusted, labels, images(64, seed=3), batch_size=32)
    assert found.domain == "sums"
    assert found.success > 0.9
    assert found.control < 0.2
    assert (found.source - faint).abs().mean() < 0.03
    expected = data.tensors[0][list(poison)].mean(0) - torch.stack(
        [data.tensors[0][[row for row in trusted if labels[row] == truth]].mean(0) for truth in poison.values()]
    ).mean(0)
    torch.testing.assert_close(found.source, expected, atol=1e-5, rtol=0)


def test_a_pattern_of_few_samples_or_without_effect_is_none():
    data, poison, _ = poisoned_by_a_faint_cross(90)
    labels = data.tensors[1]
    trusted = list(range(90, 300))
    few = dict(list(poison.items())[:20])
    assert pattern(Cross(), data, few, 1, trusted, labels, images(64), batch_size=32) is None
    clean = {row: int(labels[row]) for row in range(90, 190)}
    assert pattern(Cross(), data, clean, 1, trusted, labels, images(64), batch_size=32) is None
