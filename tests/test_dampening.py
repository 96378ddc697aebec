"""Eq. (2) against the oracle, with zero, infinite and equal ratios."""

from __future__ import annotations

import copy

import numpy as np
import oracle
import pytest
import torch

import potion


def random_importances(model, seed, zeros=0.2):
    """Integers, so that ties and exact zeros abound."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randint(0, 9, p.shape, generator=generator).to(torch.float64)
        * (torch.rand(p.shape, generator=generator) > zeros)
        for name, p in model.named_parameters()
    }


@pytest.mark.parametrize("network", oracle.NETWORKS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 2.5, 1e9, float("inf")])
@pytest.mark.parametrize("lam", [1.0, 0.3, 2.0])
def test_equals_the_equation(network, alpha, lam):
    model = oracle.network(network)
    retain, forget = random_importances(model, 1), random_importances(model, 2)
    before = copy.deepcopy(model.state_dict())
    patch = potion.dampen(model, retain, forget, alpha, lam=lam)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    expected, selected = oracle.dampened(model, retain, forget, alpha, lam)
    assert patch.count == selected
    patch.apply(model)
    for (name, found), wanted in zip(model.named_parameters(), expected.parameters(), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-12, err_msg=name)


def test_only_the_poison_uses_it_so_it_becomes_zero():
    model = oracle.network("mlp")
    ones = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    retain = {**ones, "2.bias": torch.zeros(4)}
    potion.dampen(model, retain, ones, alpha=1.0).apply(model)
    assert not model[2].bias.any()
    assert model[0].weight.any()


def test_importances_are_joined_by_name_and_checked():
    model = oracle.network("mlp")
    one, two = random_importances(model, 1), random_importances(model, 2)
    backwards = dict(reversed(two.items()))
    assert potion.dampen(model, one, two, 1.0).after == potion.dampen(model, one, backwards, 1.0).after
    with pytest.raises(ValueError, match=r"'0\.bias' is only in one of them"):
        potion.dampen(model, one, {name: value for name, value in two.items() if name != "0.bias"}, 1.0)
    with pytest.raises(ValueError, match="differ in shape"):
        potion.dampen(model, one, {**two, "0.bias": torch.ones(2)}, 1.0)
    with pytest.raises(ValueError, match="of another model"):
        potion.dampen(oracle.network("conv"), one, two, 1.0)


@pytest.mark.parametrize(("alpha", "lam"), [(-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0), (1.0, float("inf"))])
def test_thresholds_out_of_range_are_refused(alpha, lam):
    model = oracle.network("mlp")
    one = random_importances(model, 1)
    with pytest.raises(ValueError, match="must be"):
        potion.dampen(model, one, one, alpha, lam=lam)
