"""``potion patch``: shown, applied, undone bit by bit, compared; other weights and other files are left alone."""

from __future__ import annotations

import json

import pytest
import torch
from backdoor import heal, same
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner
from victim import full_disk, prefixed

import potion
from potion.cli import app


def command(*words, code=0):
    done = CliRunner().invoke(app, ["patch", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def result(case):
    return heal(case)


@pytest.fixture
def patch(result, tmp_path):
    result.patch.save(tmp_path / "patch.safetensors")
    return tmp_path / "patch.safetensors"


def test_show_tells_layers_weights_and_strength(result, patch):
    told = json.loads(command("show", patch, "--json").stdout)
    assert told["weights"] == result.patch.count == sum(layer["changed"] for layer in told["layers"])
    assert (told["method"], told["rho"], told["before"]) == ("xlf", 0.2, result.patch.before)
    first = told["layers"][0]
    change = result.patch.changes[first["name"]]
    assert first["mean_factor"] == pytest.approx(float(change.factors.mean()))
    assert first["least_factor"] == float(change.factors.min())
    text = command("show", patch).stdout
    assert first["name"] in text
    assert f"{result.patch.count:,} weights in {len(result.patch.changes)} layers" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("plain.pt", lambda state: state),
        ("module.pth", lambda state: {"module." + key: value for key, value in state.items()}),
        ("script.ckpt", lambda state: {"epoch": 3, "model": {"_orig_mod." + key: v for key, v in state.items()}}),
    ],
)
def test_apply_then_revert_gives_the_same_bits(case, result, patch, tmp_path, name, wrap):
    original, suffix = tmp_path / name, (tmp_path / name).suffix
    torch.save(wrap(case[0].state_dict()), original)
    done = command("apply", patch, original, "--out", tmp_path / f"healed{suffix}")
    assert f"{result.patch.count:,} weights changed; written: " in done.stdout
    healed = torch.load(tmp_path / f"healed{suffix}", weights_only=True)
    wanted = wrap(result.model.state_dict())
    assert equal(healed, wanted)
    command("revert", patch, tmp_path / f"healed{suffix}", "--out", tmp_path / f"back{suffix}", "--quiet")
    assert equal(torch.load(tmp_path / f"back{suffix}", weights_only=True), torch.load(original, weights_only=True))


def equal(one, two):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two) and one.dtype == two.dtype
    if isinstance(one, dict):
        return list(one) == list(two) and all(equal(one[key], two[key]) for key in one)
    return one == two


def test_safetensors_come_back_byte_by_byte(case, patch, tmp_path):
    save_file(case[0].state_dict(), tmp_path / "model.safetensors", metadata={"made": "by hand"})
    command("apply", patch, tmp_path / "model.safetensors", "--out", tmp_path / "healed.safetensors")
    command("revert", patch, tmp_path / "healed.safetensors", "--out", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    healed = nn.Sequential(*[type(layer)(*sizes(layer)) for layer in case[0]])
    healed.load_state_dict(load_file(tmp_path / "healed.safetensors"))
    assert not same(healed, case[0])


def test_quiet_says_nothing(patch):
    assert command("show", patch, "--quiet").stdout == ""
    assert command("diff", patch, patch, "--quiet").stdout == ""


def sizes(layer):
    return (layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else ()


@pytest.mark.parametrize(
    ("verb", "out", "more", "words"),
    [
        ("revert", "new.pt", [], "cannot revert this patch: that has been done already"),
        ("apply", "there.pt", [], "is there already: choose another name, or write over it with --force"),
        ("apply", "model.pt", ["--force"], "is read by this command: choose another name"),
        ("apply", "new.safetensors", [], "must end in '.pt'"),
        ("apply", "there.pt/new.pt", [], "cannot write to the folder"),
    ],
)
def test_nothing_is_written_over_or_done_twice(case, patch, tmp_path, verb, out, more, words):
    torch.save(case[0].state_dict(), tmp_path / "model.pt")
    (tmp_path / "there.pt").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = command(verb, patch, tmp_path / "model.pt", "--out", tmp_path / out, *more, code=2)
    assert words in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_files_are_refused(case, patch, tmp_path):
    other = nn.Sequential(*[type(layer)(*sizes(layer)) for layer in case[0]])
    torch.save(other.state_dict(), tmp_path / "other.pt")
    torch.save(prefixed("encoder.", nn.Linear(2, 2)), tmp_path / "foreign.pt")
    for weights, words in (("other.pt", "it belongs to a model with fingerprint"), ("foreign.pt", "of another model")):
        done = command("apply", patch, tmp_path / weights, "--out", tmp_path / "new.pt", code=2)
        assert words in done.stderr
    assert "no patch at" in command("show", tmp_path / "nothing", code=2).stderr
    assert f"is a folder: name the patch in it, like {patch}" in command("show", tmp_path, code=2).stderr
    assert "not a complete safetensors file" in command("show", tmp_path / "other.pt", code=2).stderr
    assert not (tmp_path / "new.pt").exists()


def test_force_writes_over_another_file(case, patch, tmp_path):
    torch.save(case[0].state_dict(), tmp_path / "model.pt")
    (tmp_path / "there.pt").write_text("old")
    command("apply", patch, tmp_path / "model.pt", "--out", tmp_path / "there.pt", "--force")
    assert torch.load(tmp_path / "there.pt", weights_only=True).keys() == case[0].state_dict().keys()


def test_diff_counts_what_two_patches_share(case, result, patch, tmp_path):
    milder = potion.dampen(case[0], result.retain, result.forget, 2 * result.chosen.alpha)
    milder.save(tmp_path / "milder.safetensors")
    told = json.loads(command("diff", patch, tmp_path / "milder.safetensors", "--json").stdout)
    assert (told["same_weights_before"], told["same_after"]) == (True, False)
    assert sum(layer["both"] for layer in told["layers"]) == milder.count > 0
    assert sum(layer["first_only"] for layer in told["layers"]) == result.patch.count - milder.count > 0
    assert sum(layer["second_only"] for layer in told["layers"]) == 0
    assert "They lead to different weights." in command("diff", patch, tmp_path / "milder.safetensors").stdout
    assert "Both lead to the same weights." in command("diff", patch, patch).stdout


def test_diff_compares_weight_by_weight(case, patch, tmp_path):
    """Whatever the order of the indices; a layer that only one of them changes has no factors to compare."""
    one, two = (
        potion.Patch.between(
            case[0],
            {
                name: potion.patch.Change(
                    torch.tensor(list(places)),
                    dict(case[0].named_parameters())[name].detach().flatten()[list(places)],
                    torch.tensor(list(places.values())),
                )
                for name, places in changes.items()
            },
        )
        for changes in (
            {"0.bias": {9: 0.5, 3: 0.25, 7: 1.0}},
            {"0.bias": {3: 0.5, 5: 0.0, 9: 0.375}, "2.bias": {0: 0.5}},
        )
    )
    one.save(tmp_path / "one.safetensors")
    two.save(tmp_path / "two.safetensors")
    told = json.loads(command("diff", tmp_path / "one.safetensors", tmp_path / "two.safetensors", "--json").stdout)
    assert [list(row.values()) for row in told["layers"]] == [["0.bias", 2, 1, 1, 0.25], ["2.bias", 0, 0, 1, None]]


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_full_disk_is_one_sentence(case, patch, tmp_path, suffix):
    save = torch.save if suffix == ".pt" else save_file
    save(case[0].state_dict(), tmp_path / f"model{suffix}")
    with full_disk():
        done = command("apply", patch, tmp_path / f"model{suffix}", "--out", tmp_path / f"new{suffix}", code=2)
    assert done.stderr.startswith(f"potion: cannot write new{suffix}: ")
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"model{suffix}", "patch.safetensors"]
