"""A patch is applied and undone bit by bit, survives the disk, and knows its model."""

from __future__ import annotations

import copy
import dataclasses

import oracle
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from test_dampening import random_importances
from torch import nn

import potion
from potion.fingerprint import fingerprint


def patch_for(model):
    importances = random_importances(model, 1), random_importances(model, 2)
    retain, forget = ({name: value.to(torch.float32) for name, value in each.items()} for each in importances)
    return potion.dampen(model, retain, forget, 1.5)


def bits(model):
    return {name: value.clone().contiguous().view(-1).view(torch.uint8) for name, value in model.state_dict().items()}


@pytest.mark.parametrize("network", oracle.NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_apply_then_revert_is_the_identity(network, dtype, layout, tmp_path):
    model = oracle.network(network).to(dtype)
    if network == "conv":
        model = model.to(memory_format=layout)
    before, first = bits(model), fingerprint(model)
    patch = patch_for(model)
    assert (patch.before, fingerprint(model)) == (first, first)
    patch.save(tmp_path / "p.safetensors")
    patch = potion.Patch.load(tmp_path / "p.safetensors")
    patch.apply(model)
    assert fingerprint(model) == patch.after != first
    patch.revert(model)
    assert all(torch.equal(value, before[name]) for name, value in bits(model).items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_weight_of_zero_does_not_move(dtype):
    before, after = nn.Linear(3, 2).to(dtype), nn.Linear(3, 2).to(dtype)
    with torch.no_grad():
        before.weight[0] = 0
    patch = potion.Patch.towards(before, after)
    patch.apply(before)
    assert before.weight[0].tolist() == [0, 0, 0]
    torch.testing.assert_close(before.weight[1], after.weight[1])


def test_a_tied_weight_is_changed_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    patch = patch_for(model)
    old = model.a.weight.detach().clone()
    patch.apply(model)
    assert model.b.weight is model.a.weight
    assert fingerprint(model) == patch.after
    change = patch.changes["a.weight"]
    assert torch.equal(model.a.weight.view(-1)[change.indices], old.view(-1)[change.indices] * change.factors)


def test_another_model_is_refused_and_left_alone():
    model, other = oracle.network("mlp", 0), oracle.network("mlp", 1)
    patch, before = patch_for(model), bits(other)
    for verb in (patch.apply, patch.revert):
        with pytest.raises(ValueError, match="belongs to a model with fingerprint"):
            verb(other)
    with pytest.raises(ValueError, match="revert this patch: that has been done already"):
        patch.revert(model)
    patch.apply(model)
    with pytest.raises(ValueError, match="apply this patch: that has been done already"):
        patch.apply(model)
    assert all(torch.equal(value, before[name]) for name, value in bits(other).items())


def test_the_file_keeps_what_it_was_made_with(tmp_path):
    model = oracle.network("mlp")
    patch = patch_for(model).with_metadata(method="xlf", s=0.01)
    patch.save(tmp_path / "p.safetensors")
    loaded = potion.Patch.load(tmp_path / "p.safetensors")
    assert loaded.metadata == {"alpha": 1.5, "lam": 1.0, "method": "xlf", "s": 0.01}
    assert (loaded.before, loaded.after, loaded.count) == (patch.before, patch.after, patch.count)
    assert [file.name for file in tmp_path.iterdir()] == ["p.safetensors"]


def test_a_patch_without_changes_is_a_patch(tmp_path):
    model = oracle.network("mlp")
    patch = potion.dampen(model, *[random_importances(model, 1)] * 2, alpha=float("inf"))
    patch.save(tmp_path / "p.safetensors")
    potion.Patch.load(tmp_path / "p.safetensors").apply(model)
    assert (patch.count, patch.before) == (0, patch.after)


def test_truncated_and_foreign_files_are_refused(tmp_path):
    patch_for(oracle.network("mlp")).save(whole := tmp_path / "whole.safetensors")
    for length in (0, 5, 200, whole.stat().st_size - 1):
        (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:length])
        with pytest.raises(ValueError, match="not a complete safetensors file"):
            potion.Patch.load(tmp_path / "cut.safetensors")
    (tmp_path / "text.safetensors").write_text("not a patch, and longer than eight bytes")
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        potion.Patch.load(tmp_path / "text.safetensors")
    save_file({"weight": torch.ones(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="not a potion patch"):
        potion.Patch.load(tmp_path / "weights.safetensors")
    with pytest.raises(FileNotFoundError):
        potion.Patch.load(tmp_path / "missing.safetensors")


def test_a_patch_with_parts_missing_is_refused(tmp_path):
    model = oracle.network("mlp")
    patch = patch_for(model)
    header = {"format": "potion-patch/1", "before": patch.before, "after": patch.after, "metadata": "{}"}
    save_file({"0.weight.indices": torch.tensor([0])}, tmp_path / "p.safetensors", metadata=header)
    with pytest.raises(ValueError, match="damaged potion patch"):
        potion.Patch.load(tmp_path / "p.safetensors")
    change = patch.changes["0.weight"]
    short = {"0.weight.indices": change.indices, "0.weight.old": change.old[:1], "0.weight.factors": change.factors}
    save_file(short, tmp_path / "p.safetensors", metadata=header)
    with pytest.raises(ValueError, match="damaged potion patch"):
        potion.Patch.load(tmp_path / "p.safetensors")


def test_the_fingerprint_sees_every_bit():
    model = oracle.network("conv")
    first = fingerprint(model)
    other = copy.deepcopy(model)
    assert fingerprint(other) == first
    other[2].running_mean[0] = torch.nextafter(other[2].running_mean[0], torch.tensor(9.0, dtype=torch.float64))
    assert fingerprint(other) != first
    assert fingerprint(model.to(memory_format=torch.channels_last)) == first


TAMPERED = {
    "indices too large": {"indices": lambda part: part + 10**6},
    "negative indices": {"indices": lambda part: part - 10**6},
    "indices that are floats": {"indices": lambda part: part.double()},
    "a table for a list": {"old": lambda part: part[None]},
    "other factors": {"factors": lambda part: part * 7},
    "other old values": {"old": lambda part: part + 1},
    "a single number": {"old": lambda part: part[0].clone()},
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_patch_is_refused_and_nothing_is_half_done(tmp_path, name):
    model = oracle.network("mlp")
    patch_for(model).save(path := tmp_path / "p.safetensors")
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for part, change in TAMPERED[name].items():
        tensors[f"2.weight.{part}"] = change(tensors[f"2.weight.{part}"]).contiguous()
    save_file(tensors, path, metadata=header)
    before = bits(model)
    with pytest.raises(ValueError, match="damaged"):
        potion.Patch.load(path).apply(model)
    assert all(torch.equal(value, before[key]) for key, value in bits(model).items())


def test_a_patch_for_a_weight_that_is_not_there_is_refused(tmp_path):
    model = oracle.network("mlp")
    patch = patch_for(model)
    renamed = dataclasses.replace(patch, changes={"9.weight": patch.changes["0.weight"]})
    with pytest.raises(ValueError, match=r"no weight that it names in '9\.weight'"):
        renamed.apply(model)
    assert patch != potion.dampen(model, *[random_importances(model, 1)] * 2, alpha=1.0)
