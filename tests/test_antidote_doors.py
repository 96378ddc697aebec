"""The antidote's doors: what data and models it takes, what it refuses in words, and what it says where it did not take."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.data import TensorDataset
from victim import learned_of_a_corner

import potion
from potion.antidote import Antidote
from potion.antidote.localise import Search, Surroundings, localise
from potion.antidote.medicine import Medicine, taught
from potion.antidote.trigger import extremes
from potion.attacks import BadNet

CPU = torch.device("cpu")
KNOWN = list(range(8))


@pytest.fixture(scope="module")
def marked():
    """A small network that learned to say 0 of a bright corner: the model, its data, the poison first."""
    return learned_of_a_corner()


def heal(model, data, **more):
    given = {"batch_size": 32, "progress": False, "device": "cpu"}
    return potion.heal(model, data, KNOWN, "antidote", **given | more)


@pytest.fixture(scope="module")
def healed(marked):
    return heal(*marked)


def test_floats_of_any_size_are_taken(marked, healed):
    model, data = marked
    assert healed.status is potion.Status.HEALED, healed.summary()
    double = heal(model, TensorDataset(data.tensors[0].double(), data.tensors[1]))
    assert double.status is potion.Status.HEALED, double.summary()
    assert double.patch.after == healed.patch.after


def test_bytes_and_weights_of_other_sizes_are_refused(marked):
    model, data = marked
    pictures, labels = data.tensors
    with pytest.raises(ValueError, match="train_set yields uint8: give the antidote images as floats"):
        heal(model, TensorDataset((pictures * 255).byte(), labels))
    for size in (torch.float64, torch.bfloat16):
        with pytest.raises(ValueError, match=rf"but the model has {str(size)[6:]} weights: give it model.float\(\)"):
            heal(copy.deepcopy(model).to(size), data)
    with pytest.raises(ValueError, match=r"fails on a batch of train_set, \(2, 3, 12, 12\) of float32"):
        heal(model, TensorDataset(torch.rand(320, 3, 12, 12), labels))


def test_a_treatment_is_short_when_printed(healed):
    assert healed.treatment.triggers
    assert "tensor(" not in repr(healed.treatment)
    assert "corrected" not in repr(healed.treatment)
    assert repr(healed) == f"<HealResult {healed.summary()}>"


def test_discover_wants_the_model_that_was_healed(marked, healed):
    model, data = marked
    suspects = potion.discover(model, healed, data, device="cpu")
    assert len(set(suspects.poison) & set(range(8, 40))) >= 24
    assert repr(suspects) == f"<Suspects {len(suspects)} samples; the first {suspects.cut} are taken to be poison>"
    with pytest.raises(ValueError, match="the poisoned model that the result was made from"):
        potion.discover(healed.model, healed, data, device="cpu")


def test_where_it_does_not_take_xlf_is_tried_and_what_became_of_the_label_is_told(marked):
    model, data = marked
    result = heal(model, data, antidote=Antidote(lr=1e-12, quarantines=1, rounds=1))
    assert result.method == "xlf"
    assert result.notes[0].endswith("so XLF + PTN was tried in its place")
    assert {"antidote, localising", "antidote, immunising", "patch"} < result.timings.keys(), "nothing of it is hidden"
    assert result.status is potion.Status.HEALED, result.summary()
    others = torch.nonzero(data.tensors[1] == 0).flatten()
    others = others[others >= len(KNOWN)]
    with torch.no_grad():
        before, after = (
            (each(data.tensors[0][others]).argmax(1) == 0).float().mean() for each in (model, result.model)
        )
    assert (
        result.notes[-1]
        == f"of the other samples with that label {before:.0%} got it before and {after:.0%} get it now"
    )


def test_a_trigger_may_be_brighter_than_anything_that_is_trusted():
    """A model that obeys a corner above 0.8, where trusted images end at 0.6: clamped to their range it would do nothing."""

    class Bright(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(40.0), requires_grad=False)

        def forward(self, x):
            corner = x[:, :, -3:, -3:].mean((1, 2, 3))
            return torch.stack([torch.zeros_like(corner), self.weight * (corner - 0.8)], 1)

    dark = 0.6 * torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    (source,) = BadNet()(dark[:1], torch.zeros(1))
    around = Surroundings(trusted=dark, ordinary={1: dark})
    (found,) = localise(Bright(), source[None], [1], around, Search(steps=100, images=8), domains=["pixels"])
    assert found.limits == extremes(dark, source) == (float(dark.min()), 1.0)
    assert found.success > 0.9


def test_an_epoch_over_few_samples_has_enough_steps(marked):
    """One batch an epoch would be a handful of steps, which teach nothing."""
    model, data = marked
    seen = []

    class Watching(Medicine):
        def changed(self, inputs, labels, indices):
            seen.append(len(indices))
            return super().changed(inputs, labels, indices)

    for batch_size, size in ((512, 20), (8, 8)):
        seen.clear()
        medicine = Watching(data, {}, [], CPU, share=0.2, seed=0)
        taught(model, medicine, range(320), epochs=2, batch_size=batch_size, lr=0.01, seed=0, progress=False)
        assert seen == [size] * (2 * 320 // size)
