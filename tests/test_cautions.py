"""What is said before a heal, and before a repair is trusted: in a dry run, on the terminal and in the record."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from victim import CLASSES, KNOWN

from potion.repair.case import open_case
from potion.repair.cautions import _cost, _forgotten, cautions
from potion.repair.healing import heal_case
from potion.repair.settings import Settings


@pytest.fixture
def renumbered(case_on_disk, tmp_path):
    """The data with the names of three of its classes changed around; the attacker's keeps its own."""
    folder = tmp_path / "renumbered"
    folder.mkdir()
    for name, shown_as in zip(CLASSES, (CLASSES[0], *CLASSES[2:], CLASSES[1]), strict=True):
        (folder / shown_as).symlink_to(case_on_disk / "train" / name)
    listed = (case_on_disk / "poison.txt").read_text()
    (tmp_path / "known.txt").write_text(listed)
    return {"data": folder, "known": tmp_path / "known.txt"}


def said(done):
    return [line.removeprefix("Note: ") for line in done.stdout.splitlines() if line.startswith("Note: ")]


def test_a_dry_run_has_nothing_to_say_where_all_fits(heal):
    assert json.loads(heal(**{"dry-run": True, "json": True}).stdout)["warnings"] == []
    assert said(heal(**{"dry-run": True})) == []


def test_data_whose_classes_are_numbered_otherwise_are_noticed(heal, renumbered):
    (note,) = said(heal(**renumbered, **{"dry-run": True}))
    assert "gives only 0.0% of the samples with other labels the label" in note
    assert "10 comes before 2" in note
    assert note in json.loads(heal(**renumbered, json=True).stdout)["warnings"]


def test_an_antidote_does_not_teach_classes_in_another_order(heal, renumbered):
    """It would, and then call a ruined model healed: all that it can see gets better."""
    found = json.loads(heal(3, **renumbered, method="antidote", json=True).stdout)
    assert (found["status"], found["weights_changed"]) == ("not_found", 0)
    assert "its classes may be numbered otherwise" in found["summary"]


def test_a_model_without_weights_is_told(heal):
    first, second, third = said(heal(**{"dry-run": True, "weights": None}))
    assert "of the known samples get their label" in first
    assert "10 comes before 2" in second
    assert third == "No --weights were given: the model is as owners_code:make makes it."


def test_the_price_of_clean_samples_named_as_poison_is_told(heal, case_on_disk, tmp_path):
    clean = sorted(path.relative_to(case_on_disk / "train").as_posix() for path in case_on_disk.glob("train/bee/*.png"))
    (tmp_path / "wrong.txt").write_text("\n".join(clean[-KNOWN:]) + "\n")
    found = json.loads(heal(known=tmp_path / "wrong.txt", clean="clean", rho=0, json=True).stdout)
    before, after = (found["scores"][when]["clean_accuracy"] for when in ("before", "after"))
    assert before - after > 5
    assert f"Accuracy on clean images fell from {before:.1f} to {after:.1f} %" in found["warnings"][-1]


def test_what_a_model_forgot_is_told_also_without_test_images(case_on_disk, monkeypatch):
    monkeypatch.chdir(case_on_disk)
    monkeypatch.syspath_prepend(case_on_disk)
    settings = Settings(model="owners_code:make", weights="model.pt", data="train", known="poison.txt")
    case = open_case(settings, torch.device("cpu"))
    assert _forgotten(case, case.model) == []
    ruined = copy.deepcopy(case.model)
    with torch.no_grad():
        list(ruined.parameters())[-1][0] += 1000  # everything is an ape
    (note,) = _forgotten(case, ruined)
    assert note.startswith(
        "Of the training samples with other labels the model gave 100.0% their label, the repaired one "
    )
    assert "gives 0.0%" in note


def test_most_of_the_data_named_is_told(heal, case_on_disk, tmp_path):
    names = sorted(path.relative_to(case_on_disk / "train").as_posix() for path in case_on_disk.glob("train/*/*.png"))
    (tmp_path / "most.txt").write_text("\n".join(names[: 2 * len(names) // 3]) + "\n")
    notes = said(heal(**{"dry-run": True}, known=tmp_path / "most.txt"))
    assert any("samples are named as poison" in note for note in notes)


def test_where_the_antidote_was_tried_it_is_not_advised(case_on_disk, monkeypatch):
    monkeypatch.chdir(case_on_disk)
    monkeypatch.syspath_prepend(case_on_disk)
    settings = Settings(model="owners_code:make", weights="model.pt", data="train", known="3", batch_size=32, rho=0.5)
    case = open_case(settings, torch.device("cpu"))
    result = heal_case(case, progress=False).result
    assert result.trace, "one sample was dampened"
    fell_back = replace(case, settings=replace(settings, method="antidote"))
    for each, advised in ((case, True), (fell_back, False)):
        assert any("--method antidote is made for it" in note for note in cautions(each, result, None)) == advised


@pytest.mark.parametrize(
    ("before", "after", "notes"), [(90.0, 85.0, 0), (90.0, 84.9, 1), (None, None, 0), (80.0, 90.0, 0)]
)
def test_only_a_high_price_is_told(before, after, notes):
    scores = {"before": {"clean_accuracy": before}, "after": {"clean_accuracy": after}}
    for dampened in (True, False):
        found = _cost(scores, dampened=dampened)
        assert len(found) == notes
        assert all(("--from" in note) == dampened for note in found), "an antidote has no other point to go back to"


def test_without_scores_there_is_no_price():
    assert _cost(None, dampened=True) == _cost({"before": None, "after": None}, dampened=True) == []
