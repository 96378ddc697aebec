"""The ward: how data are sorted, and what is asked of them."""

from __future__ import annotations

import pytest
import torch
from patches import Corner, images, trigger
from torch import nn
from torch.utils.data import TensorDataset
from victim import factory
from wards import ward_of

from potion.antidote.laboratory import _around, triggers_in
from potion.antidote.localise import Search
from potion.antidote.settings import Antidote

LABELS = torch.arange(200) % 8


def admitted(known, model=None, **more):
    """A network that knows nothing, and images of eight labels; half of what is trusted is held out."""
    torch.manual_seed(0)
    data, settings = TensorDataset(torch.rand(200, 3, 10, 10), LABELS), Antidote(held_out=0.5, search=Search(steps=2))
    return ward_of(model or factory(8), data, known, batch_size=16, **({"settings": settings} | more))


def test_masks_are_not_judged_on_the_images_that_they_were_sought_on():
    ward = admitted([0, 1, 8])
    sought, judged = ward.pool.flatten(1), ward.judging.flatten(1)
    assert len(sought) + len(judged) == len(ward.held_out) == 75
    assert len(judged) == 75 // 4
    assert (torch.cdist(sought, judged) > 0).all()


@pytest.mark.parametrize(("share", "held"), [(0.01, 43), (0.1, 43), (0.5, 88), (0.999, 165)])
def test_enough_is_held_out_to_judge_by_and_enough_left_to_learn_from(share, held):
    ward = admitted([0], settings=Antidote(held_out=share, search=Search(steps=2)))
    assert len(ward.held_out) == held
    assert len(ward.trusted) == 175 - held >= 10


def test_each_attackers_label_has_its_part_of_the_sources():
    ward = admitted([*range(0, 160, 8), *range(1, 41, 8)])
    assert sorted(each.target for each in triggers_in(ward, ward.known, 8)) == [0] * 4 + [1] * 4


def test_the_known_that_were_named_by_mistake_have_no_say():
    ward = admitted([*range(0, 64, 8), 3])
    assert ward.fewest == 8
    assert admitted([*range(0, 64, 8), 1, 9]).fewest == 2
    assert ward.given == list(range(0, 64, 8))
    assert 3 not in {*ward.trusted, *ward.held_out, *ward.known, *ward.quarantined}


def test_what_obeys_is_counted_for_each_label():
    ward = admitted([0, 1, 8])
    fires, sleeps = (trigger(target=target) for target in (1, 0))
    ward.judging = images(6)
    assert ward.obeys(Corner(), [sleeps] * 9 + [fires]) == {0: 0.0, 1: 1.0}
    assert ward.obeys(Corner(), [fires, trigger(source=torch.zeros(2, 6, 8))]) == {1: 0.5}
    assert ward.obeys(Corner(), []) == {}


def test_obedience_is_counted_for_each_label():
    ward = admitted([0, 1, 8])
    _, guesses = ward.margins(ward.victim, range(40))
    expected = {label: float((guesses[LABELS[:40] == label] == label).float().mean()) for label in range(8)}
    assert ward.obedience(ward.victim, range(40)) == pytest.approx(expected)
    assert ward.accuracy(ward.victim, range(40)) == pytest.approx(sum(expected.values()) / 8)
    assert ward.obedience(ward.victim, []) == {}


def test_images_of_another_size_without_augmentation_are_refused():
    small = TensorDataset(torch.rand(200, 3, 8, 8), LABELS)
    with pytest.raises(ValueError, match=r"train_set yields images \(3, 10, 10\), unaugmented \(3, 8, 8\)"):
        admitted([0], plain=small)


def test_a_few_examples_do_not_keep_all_images_in_memory():
    assert admitted([0]).examples(3).untyped_storage().nbytes() == 3 * 3 * 10 * 10 * 4


def test_ordinary_images_are_filled_up_where_a_label_has_few():
    ward = admitted([0, 1, 8])
    few = [index for index in ward.quarantined if LABELS[index] == 0][:3]
    around = _around(ward, [0], few)
    assert len(around.ordinary[0]) == 16
    assert torch.equal(around.ordinary[0][:3], ward.fetched(ward.plain_set, few)[0])


def test_a_model_spread_over_several_devices_is_refused():
    model = factory(8)
    model.elsewhere = nn.Parameter(torch.zeros(3, device="meta"))
    with pytest.raises(ValueError, match="the model is spread over several"):
        admitted([0], model)
