"""Another point of a finished search is chosen from what it left, and nothing else is claimed."""

from __future__ import annotations

import json

import torch
from backdoor import same
from victim import FILES, FROM, factory, loaded, refused, same_patch, saying

import potion
from potion.fingerprint import fingerprint


def test_another_point_is_chosen_without_the_data(heal, healed, tmp_path):
    folder, record = healed
    heal(**{**FROM, "from": folder, "rho": 0.2, "out": tmp_path / "same"})
    original = potion.Patch.load(folder / "patch.safetensors")
    assert same_patch(potion.Patch.load(tmp_path / "same" / "patch.safetensors"), original)
    assert same(loaded(tmp_path / "same" / "healed.pt")[0], loaded(folder / "healed.pt")[0])

    milder = json.loads(heal(**{**FROM, "from": folder, "rho": 0.6, "json": True}).stdout)
    step = next(step for step in record["trace"] if step["known_accuracy"] <= 0.6 * record["known_accuracy"])
    assert milder["chosen"] == step
    assert 0 < milder["weights_changed"] == step["selected"] < record["weights_changed"]
    assert milder["scores"] == {**record["scores"], "after": None}, "nothing is claimed that was not measured"
    patch = potion.Patch.load(tmp_path / "out" / "patch.safetensors")
    assert fingerprint(loaded(tmp_path / "out" / "healed.pt")[0]) == patch.after
    heal(**{**FROM, "from": folder, "rho": 0.6, "force": True})
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES - {"importances.safetensors"}


def test_what_the_search_never_saw_cannot_be_chosen(heal, healed, tmp_path):
    folder, _ = healed
    refused(
        heal(2, **{**FROM, "from": folder, "rho": 0}), "never looked further", "run it again on the data with --rho 0"
    )
    refused(heal(2, **{**FROM, "from": folder, "data": "train"}), "--data does not go with --from")
    refused(heal(2, **{**FROM, "from": folder, "method": "xlf"}), "--method does not go with --from")
    refused(heal(2, **{**FROM, "from": tmp_path}), "no result.json there")
    torch.save(factory().state_dict(), tmp_path / "other.pt")
    refused(heal(2, **{**FROM, "from": folder, "weights": tmp_path / "other.pt"}), "not the weights that were healed")
    assert not (tmp_path / "out").exists()


def test_choosing_in_place_keeps_the_importances(heal, tmp_path):
    heal(rho=0.05, quiet=True)
    refused(heal(2, **{**FROM, "from": tmp_path / "out", "rho": 0.6}), "already holds")
    heal(**{**FROM, "from": tmp_path / "out", "rho": 0.6, "force": True})
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    heal(**{**FROM, "from": tmp_path / "out", "rho": 0.05, "force": True})


def test_a_search_that_ran_out_stays_so(heal, tmp_path):
    """Everything is an ape, poisoned or not: no weight matters more to the poison."""
    done = heal(3, weights=saying("ape", tmp_path / "stubborn.pt"))
    assert "xlf: saturated;" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES - {"healed.pt", "patch.safetensors"}
    again = heal(3, **{**FROM, "from": tmp_path / "out", "rho": 0.9, "out": tmp_path / "again"})
    assert "above the goal of 90.0% (rho = 0.9)" in again.stdout
    assert {path.name for path in (tmp_path / "again").iterdir()} == {"result.json", "report.html"}
