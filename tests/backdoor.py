"""A small network with a backdoor, learned in a second, and short ways to heal and compare it."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potion


def learned(count=200, poison=24, seed=0):
    """A small network that learned a backdoor: the last input at 6 means class 0. Returns it, its data, the poison."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    y = (x @ torch.randn(8, 4, generator=generator)).argmax(1)
    x[:poison, 7], y[:poison] = 6, 0
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return model.eval(), TensorDataset(x, y), list(range(poison))


def heal(case, **more):
    model, data, known = case
    return potion.heal(model, data, **{"known_poison": known[:12], "batch_size": 64, "progress": False, **more})


def same(one, two):
    return all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
