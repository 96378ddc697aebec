"""Another point of a finished search is chosen from what it left, and nothing else is claimed."""

from __future__ import annotations

import json
import shutil

import pytest
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
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_what_the_search_never_saw_cannot_be_chosen(heal, healed, tmp_path):
    folder, _ = healed
    refused(
        heal(2, **{**FROM, "from": folder, "rho": 0}), "never looked further", "run it again on the data with --rho 0"
    )
    refused(heal(2, **{**FROM, "from": folder, "rho": 1.0}), "--rho 1: give the share of the known poison's accuracy")
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
    assert {path.name for path in (tmp_path / "again").iterdir()} == FILES - {"healed.pt", "patch.safetensors"}


def test_a_choice_can_be_chosen_from_as_its_page_says(heal, healed, tmp_path):
    """Also where another heal lay: its importances are not those of the choice."""
    folder, _ = healed
    heal(method="ssd", quiet=True)
    heal(**{**FROM, "from": folder, "rho": 0.6, "force": True})
    heal(**{**FROM, "from": tmp_path / "out", "rho": 0.2, "out": tmp_path / "back"})
    first = potion.Patch.load(folder / "patch.safetensors")
    assert same_patch(potion.Patch.load(tmp_path / "back" / "patch.safetensors"), first)
    assert json.loads((tmp_path / "back" / "result.json").read_text())["method"] == "xlf"


def test_weights_that_have_moved_are_found_by_the_next_choice(case_on_disk, heal, healed, tmp_path):
    shutil.copy(case_on_disk / "model.pt", tmp_path / "moved.tar")
    heal(**{**FROM, "from": healed[0], "weights": tmp_path / "moved.tar"})
    heal(**{**FROM, "from": tmp_path / "out", "rho": 0.6, "out": tmp_path / "next"})
    assert (tmp_path / "next" / "healed.tar").is_file()


@pytest.fixture
def record(healed, tmp_path):
    """A copy of the heal as ``tmp_path/copy``, whose record can be changed."""
    shutil.copytree(healed[0], tmp_path / "copy")

    def changed(**more):
        path = tmp_path / "copy" / "result.json"
        old = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in {**old, **more}.items() if value is not ...}))
        return old

    return changed


def test_an_antidote_leaves_nothing_to_choose_from(heal, record, tmp_path):
    record(trace=[], treatment={})
    refused(heal(2, **{**FROM, "from": tmp_path / "copy"}), "the antidote does not search, so there is no other point")


def test_what_an_earlier_heal_must_have_left(heal, record, tmp_path):
    record(search=...)
    refused(heal(2, **{**FROM, "from": tmp_path / "copy"}), "is not one that potion heal wrote")
    refused(heal(2, **{**FROM, "from": tmp_path / "copy" / "result.json"}), "no result.json there")
    (tmp_path / "copy" / "importances.safetensors").unlink()
    record(search={"rho": 0.2})
    refused(
        heal(2, **{**FROM, "from": tmp_path / "copy"}), "no other point can be chosen: give the folder of the first"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("first_look", [0.95, ...])
@pytest.mark.parametrize(("guard", "status"), [(5.0, "healed"), (2.0, "guarded")])
def test_a_guard_still_guards(heal, record, tmp_path, first_look, guard, status):
    """The last point of the search is the first below the goal, and lost three points of trusted accuracy."""
    old = record()
    trace = [{**step, "trusted_accuracy": 0.95} for step in old["trace"][:-1]]
    trace.append({**old["trace"][-1], "trusted_accuracy": 0.92})
    note = "XLF was tried in its place"
    record(trace=trace, trusted_accuracy=first_look, search={**old["search"], "guard": guard}, notes=[note])
    code = 0 if status == "healed" else 3
    told = json.loads(heal(code, **{**FROM, "from": tmp_path / "copy", "rho": 0.2, "json": True}).stdout)
    assert told["status"] == status
    assert told["summary"].endswith(f"Note: {note}.")
    assert (tmp_path / "out" / "healed.pt").exists() == (status == "healed")
    milder = json.loads(
        heal(**{**FROM, "from": tmp_path / "copy", "rho": 0.6, "json": True, "out": tmp_path / "b"}).stdout
    )
    assert milder["status"] == "healed"
    assert milder["notes"] == [note]
