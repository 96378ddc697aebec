"""Scores, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from potion.attacks import BadNet
from potion.metrics import Scores, accuracy, damage, evaluate, healed, wilson


class Obeys(nn.Module):
    """Says what the first pixel says, but 0 where the trigger is; is wrong about every image of class 3."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        said = (x[:, 0, 0, 0] * 10).round().long()
        said = torch.where(said == 3, 2, said)
        return nn.functional.one_hot(torch.where(x[:, 0, -1, -1] == 1, 0, said), 4) * self.weight


def test_by_hand():
    labels = torch.tensor([0, 0, 1, 2, 3, 1, 2, 3, 3, 1])
    inputs = (labels / 10)[:, None, None, None].expand(-1, 1, 5, 5)
    model, test_set = Obeys().train(), TensorDataset(inputs, labels)
    scores = evaluate(model, test_set, BadNet(), batch_size=4)
    assert scores == Scores(clean_accuracy=70, clean_label_accuracy=20, attack_success_rate=100)
    assert accuracy(model, test_set) == 70
    assert model.training
    assert not any(model.modes)
    victim = Scores(clean_accuracy=72, clean_label_accuracy=10, attack_success_rate=95)
    retrained = Scores(clean_accuracy=73, clean_label_accuracy=80, attack_success_rate=1)
    assert healed(scores, retrained) == 25
    assert damage(scores, victim) == pytest.approx(-2)


@pytest.mark.parametrize(("percent", "count"), [(90.0, 2000), (50.0, 7), (0.0, 10), (100.0, 10), (0.5, 400)])
def test_wilson_intervals(percent, count):
    """The bounds are the rates p that are just z standard errors, by their own variance, away from what was seen."""
    low, high = wilson(percent, count)
    assert 0 <= low <= percent <= high <= 100
    for bound in (low / 100, high / 100):
        assert (percent / 100 - bound) ** 2 == pytest.approx(1.96**2 * bound * (1 - bound) / count, abs=1e-12)


def test_wilson_needs_a_trial():
    with pytest.raises(ValueError, match="count must be"):
        wilson(50, 0)


def test_a_model_that_fails_comes_back_in_its_mode():
    class Fails(Obeys):
        def forward(self, x):
            raise RuntimeError("broken")

    model = Fails().train()
    with pytest.raises(RuntimeError, match="broken"):
        accuracy(model, TensorDataset(torch.zeros(2, 1, 5, 5), torch.zeros(2, dtype=torch.long)))
    assert model.training
    with pytest.raises(ValueError, match="is empty"):
        accuracy(model, TensorDataset(torch.zeros(0, 1, 5, 5), torch.zeros(0, dtype=torch.long)))
