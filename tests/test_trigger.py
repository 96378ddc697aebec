"""Triggers: put onto images, moved, widened, many at once."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from patches import corner, images, several, trigger

from potion.antidote.trigger import DOMAINS, SOUGHT, onto_each


def test_transplants_take_what_is_under_the_mask_and_nothing_else():
    some, one = images(3), trigger()
    found = one.onto(some)
    assert torch.equal(found[:, :, one.mask], torch.ones(3, 2, 4))
    assert torch.equal(found[:, :, ~one.mask], some[:, :, ~one.mask])


@pytest.mark.parametrize("domain", SOUGHT)
def test_all_of_a_domain_is_the_other_image_and_none_of_it_is_nothing(domain):
    some, other = images(3), images(3, seed=5)
    shape = DOMAINS[domain].shape(6, 8)
    torch.testing.assert_close(DOMAINS[domain].mixed(some, other, torch.ones(shape)), other)
    torch.testing.assert_close(DOMAINS[domain].mixed(some, other, torch.zeros(shape)), some)


def test_many_triggers_at_once_are_each_of_them_by_itself():
    some, sizes = images(11), (3, 1, 2, 5)
    expected = [one.onto(part) for one, part in zip(several(), some.split(sizes), strict=True)]
    torch.testing.assert_close(onto_each(some, list(zip(several(), sizes, strict=True))), torch.cat(expected))


def test_a_moved_trigger_keeps_its_shape_and_stays_inside():
    generator = torch.Generator().manual_seed(0)
    places = {tuple(map(tuple, torch.nonzero(trigger().moved(generator).mask).tolist())) for _ in range(1000)}
    assert len(places) == 5 * 7, "a square of two pixels fits there"
    for place in places:
        (top, left), (bottom, right) = place[0], place[-1]
        assert (bottom - top, right - left, len(place)) == (1, 1, 4)
    wave = dataclasses.replace(trigger(), domain="waves")
    assert wave.moved(generator) is wave


def test_a_wider_trigger_has_the_neighbours_of_its_pixels_and_no_others():
    one = corner(16)
    taken, wider = (set(map(tuple, torch.nonzero(mask).tolist())) for mask in (one.mask, one.wider().mask))
    height, width = one.mask.shape
    around = {(y + dy, x + dx) for y, x in taken for dy in (-1, 0, 1) for dx in (-1, 0, 1)}
    assert wider == {(y, x) for y, x in around if 0 <= y < height and 0 <= x < width} > taken
    assert one.wider().source is one.source
    wave = dataclasses.replace(one, domain="waves")
    assert wave.wider() is wave


def test_pixels_that_are_a_large_part_of_an_image_with_their_neighbours_are_left_alone():
    large = corner(13)  # 9 of 169 pixels
    assert large.wider() is large
    scattered = torch.zeros(16, 16, dtype=torch.bool)
    scattered[::8, ::8] = True
    spread = trigger(mask=scattered, source=torch.ones(2, 16, 16))
    assert spread.wider() is spread
