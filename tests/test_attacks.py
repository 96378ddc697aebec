"""Attacks change what they say and nothing else."""

from __future__ import annotations

import pytest
import torch

from potion.attacks import CORNERS, BadNet


@pytest.mark.parametrize("corner", CORNERS)
def test_badnet_paints_one_corner(corner):
    images, indices = torch.rand(5, 3, 9, 7) * 0.9, torch.arange(5)
    attack = BadNet(size=2, corner=corner, value=1.0)
    before = images.clone()
    poisoned = attack(images, indices)
    assert torch.equal(images, before)
    changed = (poisoned != images).all(1)
    assert changed.sum((1, 2)).tolist() == [4] * 5
    row, column = corner.split("-")
    assert changed[:, 0 if row == "top" else -1, 0 if column == "left" else -1].all()
    assert torch.equal(poisoned, attack(images, indices))
    assert eval(repr(attack), {"BadNet": BadNet}) == attack


def test_the_default_is_the_benchmarks():
    image = torch.zeros(1, 1, 32, 32)
    assert BadNet()(image, torch.tensor([0])).sum() == 9
    assert BadNet()(image, torch.tensor([0]))[0, 0, 29:, 29:].min() == 1
    assert BadNet(target=3).relabel(torch.tensor([0, 5]), torch.tensor([0, 1])).tolist() == [3, 3]


@pytest.mark.parametrize("bad", [{"size": 0}, {"corner": "middle"}, {"value": 1.5}])
def test_impossible_triggers_are_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        BadNet(**bad)


def test_images_need_an_index_each():
    with pytest.raises(ValueError, match="one index each"):
        BadNet()(torch.zeros(2, 1, 4, 4), torch.tensor([0]))
