"""Poisoned views, drawn from a seed."""

from __future__ import annotations

import pytest
import torch

from potion.attacks import BadNet
from potion.data import ImageSet, PoisonedSet, crop_and_flip, draw_poison, known_share


def images(count=12, size=6):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 200, (count, 1, size, size), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.arange(count) % 4, ("a", "b", "c", "d"))


def test_only_the_poisoned_samples_carry_trigger_and_target():
    base, attack = images(), BadNet(size=2, target=3)
    poisoned = PoisonedSet(base, attack, [1, 5])
    for index in range(len(base)):
        (image, label), (clean, truth) = poisoned[index], base[index]
        if index in (1, 5):
            assert (label, torch.equal(image[:, -2:, -2:], torch.ones(1, 2, 2))) == (3, True)
            assert torch.equal(image[:, :4], clean[:, :4])
        else:
            assert (label, torch.equal(image, clean)) == (truth, True)


def test_a_batch_is_its_samples():
    poisoned = PoisonedSet(images(), BadNet(size=2), [1, 5])
    inputs, labels = poisoned.get_batch(torch.tensor([5, 0, 11]))
    for row, index in enumerate((5, 0, 11)):
        assert torch.equal(inputs[row], poisoned[index][0])
        assert labels[row] == poisoned[index][1]


def test_the_trigger_comes_after_the_augmentation():
    poisoned = PoisonedSet(images(), BadNet(size=2), range(12), augment=crop_and_flip)
    inputs, _ = poisoned.get_batch(torch.arange(12))
    assert (inputs[:, :, -2:, -2:] == 1).all()


def test_crops_and_flips_are_those_of_each_image():
    """Every augmented image is one of the 81 x 2 that the paper's augmentation can make of it; the draws differ."""
    base = images(6, 8).get_batch(torch.arange(6))[0]
    drawn = [crop_and_flip(base) for _ in range(2)]
    assert not torch.equal(*drawn)
    padded = torch.nn.functional.pad(base, (4,) * 4)
    for index in range(6):
        windows = [padded[index, :, y : y + 8, x : x + 8] for y in range(9) for x in range(9)]
        every = windows + [window.flip(-1) for window in windows]
        assert any(torch.equal(drawn[0][index], candidate) for candidate in every)


def test_padding_keeps_the_image_in_the_middle():
    padded = images(2, 6).padded(9)
    assert padded.images.shape == (2, 1, 9, 9)
    assert torch.equal(padded.images[:, :, 1:7, 1:7], images(2, 6).images)
    assert padded.images[:, :, 0].sum() == 0


def test_known_sets_are_nested_and_drawn_from_the_poison():
    poison = draw_poison(1000, 50, seed=3)
    assert poison == draw_poison(1000, 50, seed=3) != draw_poison(1000, 50, seed=4)
    assert len(set(poison)) == 50
    shares = [set(known_share(poison, count, seed=1)) for count in (1, 5, 25, 50)]
    assert shares[0] < shares[1] < shares[2] < shares[3] == set(poison)
    with pytest.raises(ValueError, match="cannot know 51 of 50"):
        known_share(poison, 51, seed=0)
    with pytest.raises(ValueError, match="cannot poison 0 of 10"):
        draw_poison(10, 0, seed=0)
