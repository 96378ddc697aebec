"""The one door: what comes out, what stays untouched, and what is refused."""

from __future__ import annotations

import copy
import json

import numpy as np
import oracle
import pytest
import torch
from backdoor import heal, same
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import potion
from potion.attacks import BadNet
from potion.data import draw_poison
from potion.fingerprint import fingerprint
from potion.runtime import generator_for


@pytest.mark.parametrize("method", ["xlf", "lf", "ssd"])
@pytest.mark.parametrize("strategy", ["sequential", "bisect"])
def test_the_result_is_consistent(case, method, strategy):
    model, data, known = case
    before = copy.deepcopy(model)
    result = heal(case, method=method, search=potion.PTN(strategy=strategy))
    assert same(model, before)
    assert all(p.grad is None for p in model.parameters())
    assert result.model is not model
    assert [step.s for step in result.trace] == sorted(step.s for step in result.trace)
    assert result.summary().count("\n") == 0
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["status"] == result.status
    if result.status is potion.Status.HEALED:
        inputs, labels = data[known[:12]]
        accuracy = (result.model(inputs).argmax(1) == labels).float().mean().item()
        assert accuracy == pytest.approx(result.chosen.known_accuracy)
        assert accuracy <= 0.2 * result.known_accuracy
        assert result.patch.count == result.chosen.selected
        result.patch.revert(result.model)
    assert same(result.model, model)
    assert set(result.timings) >= {"known poison", "retain importances", "forget importances", "search", "patch"}


def test_xlf_heals_this_one(case):
    assert heal(case).status is potion.Status.HEALED


def test_a_guarded_result_says_what_its_guard_compares_with(case):
    model, data, _ = case
    inputs, labels = data.tensors
    trusted = labels != 0  # which is what all the known poison claims to be
    expected = (model(inputs[trusted]).argmax(1) == labels[trusted]).double().mean().item()
    guarded = heal(case, search=potion.PTN(guard=50))
    assert guarded.trusted_accuracy == guarded.to_dict()["trusted_accuracy"] == pytest.approx(expected)
    assert heal(case).trusted_accuracy is None


def test_the_same_seed_gives_the_same_patch_and_leaves_the_callers_randomness_alone(case):
    state = torch.get_rng_state()
    one, two, other = heal(case, seed=3), heal(case, seed=3), heal(case, seed=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert one.patch.after == two.patch.after
    assert one.trace == two.trace
    assert other.trace != one.trace  # another order of the training set, other batches


def test_the_importances_are_those_of_facts_6_or_of_the_whole_set(case):
    model, data, _ = case
    for retain, rows in (("all", range(200)), ("rest", range(12, 200))):
        order = torch.randperm(len(rows), generator=generator_for("importances", 0)).tolist()
        x, y = data[[rows[place] for place in order]]
        expected = potion.importances(model, oracle.in_batches(x, y, 64))
        torch.testing.assert_close(heal(case, retain=retain, device="cpu").retain, expected)


def test_the_order_of_the_samples_is_not_the_draw_of_the_poison():
    """Both come from one seed; were they one permutation, all the poison would sit in the first batch."""
    labels = torch.zeros(10_000, dtype=torch.long)
    poison = set(draw_poison(BadNet(), labels, 200, seed=0))
    order = torch.randperm(10_000, generator=generator_for("importances", 0))[:512].tolist()
    assert 2 <= len(poison & set(order)) <= 25  # ten are expected


def test_the_search_starts_where_facts_1_says(case):
    assert heal(case).trace[0].s == pytest.approx(12 / 200 / 25)


def test_one_sample_is_enough_to_try(case):
    assert heal(case, known_poison=[3]).status in potion.Status


def flipped(case):
    """The same model with labels that it never gives to the poison."""
    model, data, known = case
    x, y = (tensor.clone() for tensor in data.tensors)
    y[known] = (model(x[known]).argmax(1) + 1) % 4
    return model, TensorDataset(x, y), known


def test_poison_that_was_not_learned_is_said_to_be_so(case):
    result = heal(flipped(case))
    assert result.status is potion.Status.NOT_LEARNED
    assert "nothing was changed" in result.summary()
    assert (result.patch.count, result.trace, result.timings.keys() & {"search"}) == (0, [], set())
    assert same(result.model, case[0])


@pytest.mark.parametrize("strategy", ["sequential", "bisect"])
def test_where_it_is_not_healed_the_original_weights_come_back(case, strategy):
    exhausted = heal(case, search=potion.PTN(rho=0.0, max_steps=1, start=1e-9, strategy=strategy))
    assert exhausted.status is potion.Status.EXHAUSTED
    assert "exhausted" in exhausted.summary()
    # The poison against itself: no weight matters more to it than to the rest, so dampening cannot work.
    model, data, known = case
    itself = potion.heal(
        model,
        Subset(data, known[:12] * 2),
        range(12),
        batch_size=12,
        progress=False,
        search=potion.PTN(strategy=strategy),
    )
    assert itself.status is potion.Status.SATURATED
    assert "saturated" in itself.summary()
    for result in (exhausted, itself):
        assert same(result.model, model)
        assert (result.patch.count, result.patch.before) == (0, result.patch.after)


class Counting(Dataset):
    """One sample at a time, with an augmentation drawn from torch, and a count of what was read."""

    def __init__(self, data, noise=0.0):
        self.data, self.noise, self.reads = data, noise, 0

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        self.reads += 1
        x, y = self.data[index]
        return x + self.noise * torch.randn(8), int(y)


def test_any_map_style_dataset_will_do(case):
    model, data, known = case
    tensors, items = heal(case), heal((model, Counting(data), known))
    subset = heal((model, Subset(data, range(len(data))), known))
    workers = heal((model, Counting(data), known), workers=2)
    assert tensors.patch.after == items.patch.after == subset.patch.after == workers.patch.after


def test_augmented_data_and_an_unaugmented_view_for_the_stopping_test(case):
    model, data, known = case
    noisy = Counting(data, noise=0.1)
    one, two = heal((model, noisy, known)), heal((model, noisy, known))
    assert one.patch.after == two.patch.after
    result = heal((model, noisy, known), unaugmented=data)
    inputs, labels = data[known[:12]]
    assert result.chosen.known_accuracy == pytest.approx(
        (result.model(inputs).argmax(1) == labels).float().mean().item()
    )


def test_cached_importances_are_found_again_by_content(case, tmp_path):
    model, data, known = case
    first = heal(case, retain="all", cache=tmp_path)
    (file,) = tmp_path.iterdir()
    stamp = file.stat().st_mtime_ns
    again = heal(case, retain="all", cache=tmp_path, known_poison=[1])
    assert torch.equal(again.retain["0.weight"], first.retain["0.weight"])
    assert [entry.stat().st_mtime_ns for entry in tmp_path.iterdir()] == [stamp]
    assert heal(case, retain="all").patch.after == heal(case, retain="all", cache=tmp_path).patch.after
    changed = TensorDataset(data.tensors[0].clone(), data.tensors[1])
    changed.tensors[0][199, 0] += 1
    for more in ({"seed": 1}, {"method": "lf"}, {"batch_size": 32}, {"retain": "rest"}):
        heal(case, **{"retain": "all", "cache": tmp_path, **more})
    heal((model, changed, known), retain="all", cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
    file.write_bytes(file.read_bytes()[:100])
    assert heal(case, retain="all", cache=tmp_path).patch.after == first.patch.after


@pytest.mark.parametrize("known", [np.array([1, 2]), torch.tensor([1, 2]), range(1, 3), (1, 2), [np.int32(1), 2]])
def test_indices_of_any_integer_kind(case, known):
    assert heal(case, known_poison=known).patch.after == heal(case, known_poison=[1, 2]).patch.after


class Tuple(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x), None


class Broken(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x) / 0.0 * 0.0


def with_nan(model):
    broken = copy.deepcopy(model)
    broken[2].weight.data[5, 5] = float("nan")
    return broken


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


BAD = {
    "no known poison": (dict(known_poison=[]), ValueError, "known_poison is empty"),
    "out of range": (dict(known_poison=[3, 200]), ValueError, "index 200, but train_set has the indices 0 to 199"),
    "negative": (dict(known_poison=[-1]), ValueError, "index -1"),
    "repeated": (dict(known_poison=[4, 5, 4]), ValueError, "sample 4 more than once"),
    "not an integer": (dict(known_poison=[1.0]), TypeError, "must hold integers, got 1.0"),
    "a mask": (dict(known_poison=[True, False]), TypeError, "not a mask"),
    "a tensor mask": (dict(known_poison=torch.tensor([True, False])), TypeError, "not a mask"),
    "a numpy mask": (dict(known_poison=np.array([True, False])), TypeError, "not a mask"),
    "a number": (dict(known_poison=3), TypeError, "must be a list of indices"),
    "a number in a tensor": (dict(known_poison=torch.tensor(3)), TypeError, "must be a list of indices"),
    "a number in an array": (dict(known_poison=np.array(3)), TypeError, "must be a list of indices"),
    "a name": (dict(known_poison="17"), TypeError, "must be a list of indices"),
    "all known": (dict(known_poison=range(200)), ValueError, "names all 200 samples"),
    "batch size 0": (dict(batch_size=0), ValueError, "batch_size must be"),
    "batch size 1.5": (dict(batch_size=1.5), TypeError, "batch_size must be a whole number"),
    "unknown method": (dict(method="magic"), ValueError, "unknown method 'magic'; known are xlf, lf, ssd"),
    "unknown retain": (dict(retain="some"), ValueError, "retain must be one of rest, all"),
    "bad exponent": (dict(exponent=0.0), ValueError, "exponent must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused(case, name):
    settings, error, words = BAD[name]
    before = copy.deepcopy(case[0])
    with pytest.raises(error, match=words):
        heal(case, **settings)
    assert same(case[0], before)


def test_bad_models_and_data_are_refused(case):
    model, data, known = case
    x, y = data.tensors
    for bad, error, words in (
        (nn.Flatten(), ValueError, "no parameters"),
        (lambda inputs: inputs, TypeError, "must be a torch.nn.Module"),
        (Tuple(model), TypeError, "got tuple"),
        (Broken(model), ValueError, "returns NaN or inf"),
        (with_nan(model), ValueError, "'2.weight' holds NaN or inf"),
    ):
        with pytest.raises(error, match=words):
            heal((bad, data, known))
    for where, label in ((known[3], 4), (known[3], -1), (150, 9), (150, -100)):
        labels = y.clone()
        labels[where] = label
        for method in ("xlf", "ssd"):
            with pytest.raises(ValueError, match=rf"labels from .*{label}.*, but the model has 4 logits"):
                heal((model, TensorDataset(x, labels), known), method=method)
    for odd, words in (
        (Stream(), "map-style"),
        (TensorDataset(x), r"\(input, label\) pairs"),
        (TensorDataset(x, y.float()), "one integer label a sample, got torch.float32"),
        ([("picture", 1)] * 200, "tensors as inputs"),
    ):
        with pytest.raises(TypeError, match=words):
            heal((model, odd, known))


def test_a_model_that_does_not_fit_the_data_is_told_with_their_shape(case):
    model, data, known = case
    with pytest.raises(ValueError, match=r"fails on a batch of train_set, \(12, 5\) of float32: mat1 and mat2"):
        heal((model, TensorDataset(data.tensors[0][:, :5], data.tensors[1]), known))


def test_labels_that_begin_with_one_are_not_called_unlearned(case):
    """The model gives none of the known poison its label then, which is what poison that was not learned looks like."""
    model, data, known = case
    with pytest.raises(ValueError, match=r"labels from 1 to 4, but the model has 4 logits"):
        heal((model, TensorDataset(data.tensors[0], data.tensors[1] + 1), known))


def test_the_steps_that_are_told_are_those_up_to_the_choice(case):
    result = heal(case, search=potion.PTN(stop="trusted"))
    steps = result.trace.index(result.chosen) + 1
    assert steps < len(result.trace), "this rule looks farther than it goes"
    assert f"in {steps} step" in result.summary()


def test_the_result_stays_in_the_callers_precision_and_place(case):
    model, data, known = case
    half = copy.deepcopy(model).to(torch.float16)
    result = heal((half, data, known))
    assert {p.dtype for p in result.model.parameters()} == {torch.float16}
    assert {p.device.type for p in result.model.parameters()} == {"cpu"}
    assert fingerprint(result.model) == result.patch.after
