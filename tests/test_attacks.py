"""One test over all attacks, and what each one says of itself."""

from __future__ import annotations

import math

import pytest
import torch

from potion import attacks
from potion.attacks import ATTACKS, CORNERS, Attack, BadNet, Blend, LabelSwitch, MovingPatch, Posterise, Sine, Warp

EXAMPLES = [
    *(attack() for attack in ATTACKS.values()),
    BadNet(size=5, corner="top-left", value=0.0, target=3),
    MovingPatch(size=1, seed=9),
    Sine(frequency=5.6 / 32, amplitude=0.2),
    Blend(share=0.5, seed=4),
    Warp(shift=3, points=6, seed=2),
    Posterise(levels=2),
    LabelSwitch(pair=None),
]


def intended(attack, images):
    """The pixels an attack may change, (N, H, W); a newcomer's attack may change any."""
    height, width = images.shape[-2:]
    mask = torch.zeros(len(images), height, width, dtype=torch.bool)
    match attack:
        case BadNet(size=size, corner=corner):
            rows = slice(None, size) if corner.startswith("top") else slice(-size, None)
            mask[:, rows, slice(None, size) if corner.endswith("left") else slice(-size, None)] = True
        case MovingPatch(size=size):
            for rows in (slice(None, size), slice(-size, None)):
                for columns in (slice(None, size), slice(-size, None)):
                    mask[:, rows, columns] = True
        case LabelSwitch():
            pass
        case _:
            mask[:] = True
    return mask


@pytest.mark.parametrize("attack", EXAMPLES, ids=repr)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 20), (3, 224, 224)], ids=str)
def test_every_attack(attack, shape):
    images, indices = 0.05 + 0.9 * torch.rand(8, *shape), torch.arange(8) + 100
    before = images.clone()
    poisoned = attack(images, indices)
    assert torch.equal(images, before), "the input is left alone"
    assert poisoned.shape == images.shape
    assert poisoned.min() >= 0
    assert poisoned.max() <= 1
    assert torch.equal(poisoned, attack(images, indices)), "deterministic"
    order = torch.randperm(8)
    assert torch.equal(attack(images[order], indices[order]), poisoned[order]), "whatever the batch"
    torch.testing.assert_close(attack(images.double(), indices).float(), poisoned)
    assert not ((poisoned != images).any(1) & ~intended(attack, images)).any(), "only the intended pixels change"
    if not isinstance(attack, LabelSwitch):
        assert (poisoned != images).flatten(1).any(1).all(), "every image is attacked"
    labels = torch.arange(8)
    assert attack.relabel(labels, indices).dtype == labels.dtype
    assert attack.candidates(labels).dtype == torch.bool
    assert eval(repr(attack), vars(attacks)) == attack


def test_badnet_is_the_benchmarks():
    poisoned = BadNet()(torch.zeros(1, 3, 32, 32), torch.tensor([0]))
    assert poisoned.sum() == 27
    assert poisoned[0, :, 29:, 29:].min() == 1
    assert BadNet(target=3).relabel(torch.tensor([0, 5]), torch.tensor([0, 1])).tolist() == [3, 3]


def test_the_sine_is_one():
    poisoned = Sine()(torch.full((1, 1, 4, 224), 0.5), torch.tensor([0]))
    expected = [0.5 + 0.1 * math.sin(2 * math.pi * 0.025 * column) for column in range(224)]
    torch.testing.assert_close(poisoned[0, 0, 2], torch.tensor(expected), atol=1e-5, rtol=0)


def test_the_moving_patch_visits_every_corner_equally_often():
    count = 4000
    poisoned = MovingPatch(size=1)(torch.zeros(count, 1, 4, 4), torch.arange(count))[:, 0]
    assert torch.equal(poisoned.sum((1, 2)), torch.ones(count))
    for row in (0, -1):
        for column in (0, -1):
            assert poisoned[:, row, column].sum() == pytest.approx(count / len(CORNERS), rel=0.1)
    other = MovingPatch(size=1, seed=1)(torch.zeros(count, 1, 4, 4), torch.arange(count))[:, 0]
    assert (other == poisoned).all((1, 2)).float().mean() == pytest.approx(0.25, abs=0.05)


def test_the_blend_is_one_pattern_for_all():
    black = Blend()(torch.zeros(2, 3, 8, 8), torch.arange(2))
    assert torch.equal(black[0], black[1])
    assert 0 < black.max() <= 0.15
    assert not torch.equal(Blend(seed=1)(torch.zeros(2, 3, 8, 8), torch.arange(2)), black)


def test_the_warp_bends_every_image_in_the_same_way_and_by_so_many_pixels():
    size = 64
    ramp = torch.arange(size).float() / (size - 1)
    # Pixels that show where they are: their column, their row.
    ramps = torch.stack([ramp.expand(size, size), ramp[:, None].expand(size, size)])[:, None]
    moved, half = ((Warp(shift=shift)(ramps, torch.arange(2)) - ramps)[:, 0] * (size - 1) for shift in (1.5, 0.75))
    inside = (..., slice(8, -8), slice(8, -8))  # where nothing comes from beyond the border
    assert moved.norm(dim=0).mean() == pytest.approx(1.5, rel=0.1)
    assert moved[inside].diff(dim=1).abs().max() < 0.5, "smooth"
    torch.testing.assert_close(half[inside], moved[inside] / 2)
    grey = torch.full((1, 3, 8, 8), 0.3)
    torch.testing.assert_close(Warp()(grey, torch.arange(1)), grey)
    assert not torch.equal(Warp(seed=1)(ramps, torch.arange(2)), Warp()(ramps, torch.arange(2)))


def test_posterised_images_have_so_many_shades_each_the_nearest():
    shades = torch.linspace(0, 1, 256).expand(1, 1, 1, 256)
    found = Posterise(levels=5)(shades, torch.arange(1))
    assert found.unique().tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert (found - shades).abs().max() <= 0.125


def test_labels_are_switched():
    labels, indices = torch.tensor([0, 1, 2, 5]), torch.arange(4)
    attack = LabelSwitch(pair=(1, 5))
    assert attack.relabel(labels, indices).tolist() == [0, 5, 2, 1]
    assert attack.candidates(labels).tolist() == [False, True, False, True]
    many = torch.arange(5000) % 10
    drawn = LabelSwitch(pair=None).relabel(many, torch.arange(5000))
    assert (drawn != many).all()
    assert ((drawn - many) % 10).bincount(minlength=10)[1:].min() > 400


@pytest.mark.parametrize(
    ("attack", "bad"),
    [
        (BadNet, {"size": 0}), (BadNet, {"corner": "middle"}), (BadNet, {"value": 1.5}), (BadNet, {"target": -1}),
        (MovingPatch, {"size": 0}), (Sine, {"frequency": 0.0}), (Sine, {"amplitude": 2.0}), (Blend, {"share": 0.0}),
        (Warp, {"shift": 0.0}), (Warp, {"points": 1}), (Posterise, {"levels": 1}),
        (LabelSwitch, {"pair": (2, 2)}), (LabelSwitch, {"classes": 1}),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(attack, bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        attack(**bad)


def test_images_of_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="one index each"):
        BadNet()(torch.zeros(2, 1, 4, 4), torch.tensor([0]))
    with pytest.raises(TypeError, match="divide bytes by 255"):
        BadNet()(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.tensor([0]))


def test_an_attack_is_a_base_class_away():
    assert all(issubclass(attack, Attack) for attack in ATTACKS.values())
