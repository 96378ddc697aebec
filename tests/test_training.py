"""The schedule of FACTS 11, and training that a seed decides."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from potion.embedded import new_model
from potion.fingerprint import fingerprint
from potion.models import resnet9
from potion.training import Recipe, learning_rate, train


def test_the_schedule():
    recipe = Recipe(iterations=1000, lr=0.1)
    assert [learning_rate(step, recipe) for step in (0, 4, 9)] == pytest.approx([0.01, 0.05, 0.1])
    assert learning_rate(500, recipe) == pytest.approx(0.1 * (1 - 500 / 1250))
    assert learning_rate(999, recipe) == pytest.approx(0.1 * 0.2, rel=0.01)


def trained(seed=0, indices=None, iterations=6):
    torch.manual_seed(1)
    model = new_model()
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.rand(40, 1, 16, 16, generator=generator), torch.arange(40) % 10)
    recipe = Recipe(iterations=iterations, batch_size=8, lr=0.05, channels_last=True)
    return train(model, data, recipe, indices=indices, seed=seed, progress=False)


def test_a_seed_decides_everything():
    state = torch.get_rng_state()
    one, two = trained(seed=0), trained(seed=0)
    assert fingerprint(one) == fingerprint(two) != fingerprint(trained(seed=1))
    assert not one.training
    torch.manual_seed(1)
    new_model()
    after = torch.get_rng_state()
    trained()
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(state, after)


def test_samples_left_out_are_not_seen():
    data = TensorDataset(torch.full((40, 1, 16, 16), float("nan")), torch.arange(40) % 10)
    data.tensors[0][:20] = torch.rand(20, 1, 16, 16)
    model = train(new_model(), data, Recipe(iterations=5, batch_size=8), indices=range(20), progress=False)
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "count"), [(resnet9, 2_276_224), (new_model, 143_296), (lambda: resnet9(100), 2_287_744)]
)
def test_parameter_counts(model, count):
    network = model()
    assert sum(p.numel() for p in network.parameters()) == count
    channels = network[0].mean.numel()
    network(torch.rand(2, channels, 32, 32)).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("bad", [{"iterations": 0}, {"batch_size": 0}, {"lr": 0.0}])
def test_recipes_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        Recipe(**bad)
