"""Looking at a repair without making it: the same weights, to the last bit, and the model is left alone."""

from __future__ import annotations

import pytest
import torch
from backdoor import heal, learned
from torch import nn
from torch.nn.utils import parameters_to_vector

from potion.dampening import dampen
from potion.tradeoff import AnyRepair, around, tradeoff


@pytest.fixture(scope="module")
def case():
    backdoor = learned()
    return backdoor[0], heal(backdoor)


def test_any_repair_is_the_patch_of_that_threshold(case):
    model, result = case
    before = parameters_to_vector(model.parameters()).clone()
    repair = AnyRepair(model, result)
    places = [repair.alpha(s) for s in around(result, 4)]
    for alpha in [*places, *reversed(places), float("inf")]:
        patch = dampen(model, result.retain, result.forget, alpha)
        weights, found = repair.at(alpha, lambda changed: parameters_to_vector(changed.parameters()).clone())
        patch.apply(model)
        expected = parameters_to_vector(model.parameters()).clone()
        patch.revert(model)
        assert weights == patch.count
        assert torch.equal(found, expected)
    assert torch.equal(parameters_to_vector(model.parameters()), before)


def test_a_curve_scores_the_repaired_model_at_each_place(case):
    model, result = case

    def changed(repaired: nn.Module) -> int:
        pairs = zip(repaired.parameters(), model.parameters(), strict=True)
        return sum(int((ours != theirs).sum()) for ours, theirs in pairs)

    points = list(tradeoff(model, result, around(result, 3), changed))
    assert [point.s for point, _ in points] == around(result, 3)
    assert points[0][1] < points[-1][1]
    assert all(count <= point.weights for point, count in points)  # a weight of 0 stays 0
