"""heal() under conditions that people meet: odd datasets, odd models, switches that are on, mistakes."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from backdoor import heal
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

import potion
from potion.batches import fetch, labels_of
from potion.search import search
from potion.types import Look


class Poisons(TensorDataset):
    """A common way to add a transform: a TensorDataset with another __getitem__."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return torch.cat([x[:7], torch.tensor([6.0])]) if index < 24 else x, y


class Lines(Subset):
    def __getitem__(self, index):
        return super().__getitem__(index)[0] * 1.0, 1

    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_datasets_that_override_what_they_inherit_are_asked(case):
    model, data, known = case
    x, y = data.tensors[0].clone(), data.tensors[1]
    x[:24, 7] = 0
    assert heal((model, Poisons(x, y), known)).patch.after == heal(case).patch.after
    inputs, labels = fetch(Lines(data, range(5)), [0, 1, 2])
    assert labels.tolist() == [1, 1, 1]
    assert torch.equal(inputs, data.tensors[0][:3])


class Relabels(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x, int(y) + 1


def test_labels_are_those_that_a_dataset_yields(case):
    x, y = case[1].tensors
    assert torch.equal(labels_of(Relabels(x, y)), y + 1)
    assert torch.equal(labels_of(Subset(Relabels(x, y), [3, 1])), y[[3, 1]] + 1)
    with pytest.raises(TypeError, match="one integer label"):
        labels_of(TensorDataset(x, y.float()))


def test_an_unaugmented_set_in_another_order_is_refused(case):
    data = case[1]
    turned = Subset(data, [*range(100), *range(199, 99, -1)])
    with pytest.raises(ValueError, match=r"same order, but sample 1\d\d is labelled \d there, not \d"):
        heal(case, unaugmented=turned)
    assert heal(case, unaugmented=Subset(data, range(200))).patch.after == heal(case).patch.after


class Named(Dataset):
    """Attributes with everyday names are nobody's fast path."""

    raw = "/data/raw"

    def __init__(self, data):
        self.data, self.get_batch = data, "get_batch"

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]

    def prepare(self, root="data"):
        raise AssertionError


def test_everyday_attribute_names_do_no_harm(case):
    model, data, known = case
    assert heal((model, Named(data), known)).patch.after == heal(case).patch.after


def test_whatever_the_caller_has_switched_on(case):
    expected = heal(case).patch.after
    with torch.autocast("cpu", dtype=torch.float16):
        assert heal(case).patch.after == expected
    with torch.inference_mode():
        assert heal(case).patch.after == expected
    with torch.no_grad():
        assert heal(case).patch.after == expected


class Noisy(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(nn.functional.dropout(x, 0.05, training=True))


def test_a_model_that_draws_numbers_is_seeded_too(case):
    model, data, known = case
    state = torch.get_rng_state()
    one, two = (heal((Noisy(model), data, known)) for _ in range(2))
    assert one.trace == two.trace
    assert torch.equal(torch.get_rng_state(), state)


def test_the_cache_knows_frozen_weights_structure_and_hidden_buffers(case, tmp_path):
    model, data, known = case

    class Shifted(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.model = copy.deepcopy(model)
            self.register_buffer("shift", torch.tensor(shift), persistent=False)

        def forward(self, x):
            return self.model(x + self.shift)

    frozen, other = copy.deepcopy(model), copy.deepcopy(model)
    frozen[0].requires_grad_(False)
    other[1] = nn.GELU()
    for each in (model, frozen, other, Shifted(0.0), Shifted(0.1)):
        plain, stored = heal((each, data, known)), heal((each, data, known), cache=tmp_path)
        torch.testing.assert_close(plain.retain, stored.retain, rtol=0, atol=0)
    assert len(list(tmp_path.iterdir())) == 5


def test_models_of_several_types_and_with_computed_tensors(case):
    model, data, known = case

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))
            self.model = copy.deepcopy(model)

        def forward(self, x):
            self.kept = self.model(x)  # a stashed activation
            return self.kept * self.scale.float()

    scaled = Scaled()
    scaled(data.tensors[0][:2])
    assert heal((scaled, data, known)).status is potion.Status.HEALED


def test_the_stop_is_not_missed_for_a_rounding_error():
    """7 of 50 is a fifth of 35 of 50, although 0.2 * 0.7 is less than 0.14 in floats."""
    model = nn.Linear(4, 2)
    ones = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    twos = {name: 2 + torch.rand_like(p) for name, p in model.named_parameters()}
    looks = map(Look, [0.56, 0.42, 7 / 50, 0.0])
    found = search(model, ones, twos, looks.__next__, before=Look(35 / 50), share=0.1, settings=potion.PTN())
    assert found.chosen.known_accuracy == 7 / 50


LATE = {
    "search is None": (dict(search=None), TypeError, "search must be a potion.PTN"),
    "seed is None": (dict(seed=None), TypeError, "seed must be a whole number"),
    "exponent is a word": (dict(exponent="1"), TypeError, "exponent must be a number"),
    "unaugmented too short": (dict(unaugmented=[0]), ValueError, "unaugmented must have the 200 samples"),
    "no such device": (dict(device="gpu"), ValueError, "device 'gpu' is none that torch knows: give cpu, cuda"),
    "antidote is a word": (dict(antidote="strong"), TypeError, "antidote must be a potion.Antidote, got str"),
    "workers": (dict(workers=-1), ValueError, "workers must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_mistakes_are_found_before_the_work(case, name):
    settings, error, words = LATE[name]
    with pytest.raises(error, match=words):
        heal(case, **settings)


def test_an_unusable_cache_folder_is_refused_before_the_work(case, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cannot write to the folder"):
        heal(case, cache=tmp_path / "file")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_here_is_refused(case):
    with pytest.raises(ValueError, match="device 'cuda' was asked for, but there is none here"):
        heal(case, device="cuda")


def test_numbers_of_other_libraries_are_numbers(case, tmp_path):
    result = heal(case, batch_size=np.int64(64), search=potion.PTN(rho=np.float32(0.2), step=torch.tensor(1.1)))
    result.patch.save(tmp_path / "p.safetensors")
    assert {"method", "alpha", "s", "rho", "known", "weights", "versions"} <= result.patch.metadata.keys()
    json.dumps(result.to_dict())


class Counting(torch.utils.data.Dataset):
    """Remembers which samples were asked for."""

    def __init__(self, data):
        self.data, self.asked = data, []

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        self.asked.append(index)
        x, y = self.data[index]
        return x, int(y)


@pytest.mark.parametrize(("share", "batches"), [(0.5, 6), (0.1, 1), (0.001, 1)])
def test_a_share_of_the_training_set_is_read_in_whole_batches(case, share, batches):
    model, data, known = case
    counting = Counting(data)
    heal((model, counting, known), batch_size=16, retain_share=share)
    read = [index for index in counting.asked if index not in known[:12]]
    assert len(read) == len(set(read)) == 16 * batches, "each once, of the 188 that are not known poison"


@pytest.mark.parametrize(("batch_size", "batches"), [(2, 28), (4, 24), (16, 12)])
def test_by_default_a_third_is_read_but_no_fewer_than_24_batches(case, batch_size, batches):
    model, data, known = case
    counting = Counting(data)
    heal((model, counting, known), batch_size=batch_size)
    read = [index for index in counting.asked if index not in known[:12]]
    assert len(read) == min(188, batches * batch_size)


@pytest.mark.parametrize("share", [0, -0.5, 1.5, True, "half", float("nan")])
def test_a_share_that_is_none_is_refused(case, share):
    with pytest.raises(ValueError, match="retain_share must be above 0 and at most 1"):
        heal(case, retain_share=share)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_a_traced_model_is_refused_with_the_way_out(case):
    model, data, known = case
    with pytest.raises(TypeError, match=r"TorchScript module.*load_state_dict\(scripted.state_dict\(\)\)"):
        heal((torch.jit.trace(model, data.tensors[0][:2]), data, known))
