"""Localising: what is found in a sample, next to what."""

from __future__ import annotations

import math

import pytest
import torch
from patches import Corner, images, surroundings
from torch import nn

from potion.antidote.localise import Search, Surroundings, _sizes, cut_anew, localise


def test_a_patch_is_localised_in_pixels_and_a_wave_in_waves():
    model = Corner().requires_grad_(False).eval()
    patched, waved = images(2, seed=2)
    patched[:, 4:, 6:] = 1
    waved = 0.5 + 0.4 * torch.sin(2 * math.pi * 3 * torch.arange(8) / 8).expand(2, 6, 8)
    around = surroundings()
    around.trusted[0, 0, 0, 0] = 1  # the range of an input is that of the trusted ones
    found = localise(model, torch.stack([patched, waved]), [1, 1], around, Search(steps=150, images=16))
    assert [each.domain for each in found] == ["pixels", "waves"]
    assert found[0].mask[4:, 6:].sum() == found[0].size <= 4
    assert found[1].size <= 2
    for each in found:
        assert each.success > 0.9
        assert each.control < 0.1
        assert each.strong


def test_next_to_clean_samples_a_trigger_is_what_it_is():
    """Two thirds of the label are poison that nobody has found, next to which a patch is nothing special."""
    model = Corner().requires_grad_(False).eval()
    patched, ordinary = images(1, seed=2), images(60, seed=1)
    patched[:, :, 4:, 6:] = ordinary[:40, :, 4:, 6:] = 1
    search, trusted = Search(steps=150, images=16), images(64)
    found = localise(model, patched, [1], Surroundings(trusted=trusted, ordinary={1: ordinary}), search)
    assert found[0].control > 0.4
    (clean,) = cut_anew(model, found, Surroundings(trusted=trusted, ordinary={1: ordinary[40:]}), search)
    assert clean.domain == "pixels"
    assert clean.mask[4:, 6:].sum() == clean.size <= 4
    assert clean.control < 0.1
    assert clean.strong
    assert clean.drafts is found[0].drafts, "there may be a third look"


def test_another_look_next_to_the_same_samples_finds_the_same():
    model = Corner().requires_grad_(False).eval()
    patched = images(1, seed=2)
    patched[:, :, 4:, 6:] = 1
    found = localise(model, patched, [1], surroundings(), Search(steps=60, images=16))
    (again,) = cut_anew(model, found, surroundings(), Search(steps=60, images=16), seed=3)
    assert (again.domain, again.source.tolist()) == (found[0].domain, found[0].source.tolist())
    assert torch.equal(again.mask, found[0].mask)


def test_a_sample_that_does_less_than_ordinary_ones_is_localised_as_a_loss():
    """Every pixel of an ordinary sample works here, and none of the one asked about."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(96, 2)).requires_grad_(False).eval()
    model[1].weight.copy_(torch.tensor([[0.0], [1.0]]).expand(2, 96))
    model[1].bias.copy_(torch.tensor([0.5, 0.0]))
    dark = torch.zeros(64, 2, 6, 8)
    around = Surroundings(trusted=dark.index_fill(0, torch.tensor([0]), 1.0), ordinary={1: torch.ones_like(dark)})
    (found,) = localise(model, dark[:1], [1], around, Search(steps=2, images=4), domains=["pixels"])
    assert found.gain == -1
    assert not found.strong


def test_no_more_images_at_once_than_asked_for():
    seen = []
    model = Corner().requires_grad_(False).eval()
    model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    found = localise(model, images(3), [1, 1, 1], surroundings(), Search(steps=2, images=8, at_once=16))
    cut_anew(model, found, surroundings(), Search(steps=2, images=8, at_once=16))
    assert max(seen) == 16


@pytest.mark.parametrize("count", [28 * 28, 32 * 32, 32 * 17, 112 * 112, 224 * 224, 224 * 113])
def test_up_to_half_of_an_image_is_tried_whatever_its_size(count):
    tried = _sizes(count)
    assert tried[:6] == [1, 2, 3, 4, 6, 8]
    assert tried[-1] <= count / 2 < round(math.sqrt(2) * tried[-1]) + 1
