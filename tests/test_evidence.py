"""What speaks for a trigger, with a hand-made victim: other samples that fall, known samples that differ, or neither."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from wards import ward_of

from potion.antidote.evidence import Evidence, weighed

TARGET, TRIGGER = 0, 8


def reader(trigger):
    """A linear classifier: pixel c speaks for class c, and the trigger's pixel for the target."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3, bias=False))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].weight[:, :3] = 4 * torch.eye(3)
        model[1].weight[TARGET, TRIGGER] = trigger
    return model.eval().requires_grad_(False)


def images(poison):
    """900 images of three classes; ``poison`` of class 1 have the trigger and its label."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(900) % 3
    pixels = 0.5 + 0.05 * torch.randn(900, 9, generator=generator)
    pixels[torch.arange(900), labels] += 0.5
    rows = torch.nonzero(labels == 1).flatten()[:poison]
    pixels[rows, TRIGGER] += 0.5
    labels[rows] = TARGET
    return TensorDataset(pixels.view(900, 1, 3, 3), labels), rows.tolist()


def evidence(data, known):
    """What known samples say for a trigger, where the victim has been taught to overlook it."""
    ward = ward_of(reader(12), data, known, batch_size=128)
    return weighed(ward, [], reader(0))


def test_one_known_sample_convinces_where_others_fall_with_it():
    data, poison = images(60)
    found = evidence(data, poison[:1])
    assert found.convincing
    assert (found.company >= 59, found.together) == (True, 1.0)


def test_known_samples_convince_alone_where_there_are_enough_of_them():
    data, poison = images(20)
    assert evidence(data, poison).convincing, "all of the poison is known, so nobody else falls"
    alone, poison = images(1)
    assert not evidence(alone, poison).convincing, "one sample that falls may be anything"


@pytest.mark.parametrize("count", [1, 5, 50, 200])
def test_samples_picked_at_random_do_not_convince(count):
    data, _ = images(0)
    mine = torch.nonzero(data.tensors[1] == TARGET).flatten()
    order = torch.randperm(len(mine), generator=torch.Generator().manual_seed(count))
    assert not evidence(data, mine[order[:count]].tolist()).convincing


@pytest.mark.parametrize("count", [1, 5])
def test_others_that_fall_say_nothing_of_known_samples_that_do_not(count):
    data, poison = images(60)
    clean = [index for index in torch.nonzero(data.tensors[1] == TARGET).flatten().tolist() if index not in poison]
    found = evidence(data, clean[:count])
    assert (found.company >= 60, found.together) == (True, 0.0)
    assert not found.convincing
    mixed = evidence(data, [*clean[:count], *poison[:count]])
    assert mixed.together == 0.5
    assert mixed.convincing, "half of the names may be wrong"


@pytest.mark.parametrize(
    ("changed", "convincing"),
    [
        ({}, False),
        ({"strength": 0.14}, True),
        ({"company": 7}, False),
        ({"together": 1.0}, False),
        ({"company": 7, "together": 0.5}, True),
        ({"apart": 3.0}, True),
    ],
)
def test_one_of_three_things_must_be_seen(changed, convincing):
    found = Evidence(**{"strength": 0.1, "company": 6, "enough": 7, "together": 0.4, "apart": 2.9} | changed)
    assert found.convincing == convincing
    assert found.to_dict()["company"] == found.company


def test_what_does_not_convince_is_told_as_it_is():
    weak = {"strength": 0.1, "enough": 7, "apart": 1.5}
    alone = Evidence(**weak, company=2, together=1.0).told()
    assert "few others fall when the model is told the truth about it (2, 7 would do)" in alone
    without = Evidence(**weak, company=12, together=0.25).told()
    assert (
        "others fall when the model is told the truth about it (12), but the known samples do not (25% of them"
        in without
    )
    for told in (alone, without):
        assert "strength 0.10, 0.14 would do" in told
        assert "1.5 standard deviations below them, 3 would do" in told
