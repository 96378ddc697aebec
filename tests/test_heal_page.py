"""The page that ``potion heal`` leaves, what of the data it shows, and the settings of the search."""

from __future__ import annotations

import base64
import io
import json

import pytest
import torch
from PIL import Image
from victim import FILES, FROM, refused

from potion.metrics import wilson
from potion.repair.thumbnails import png
from potion.report.heal_view import heal_page


def test_the_page_is_made_from_the_record(healed):
    folder, _ = healed
    record = json.loads((folder / "result.json").read_text())
    html = (folder / "report.html").read_text()
    assert html == heal_page(record, str(folder)), "and from nothing else: potion report makes the same"
    assert "{:.1f} to {:.1f}".format(*wilson(record["scores"]["after"]["clean_accuracy"], 80)) in html
    assert html.count("<img ") == 8


def test_scores_say_how_many_images_they_are_about(healed):
    scores = healed[1]["scores"]
    assert {key: scores[key] for key in scores if key.startswith("n_")} == {
        "n_clean": 80,
        "n_triggered": 80,
        "n_attacked": 60,  # of the other three classes
    }


def test_a_few_known_samples_are_shown_as_they_are_stored(case_on_disk, healed):
    folder, printed = healed
    record = json.loads((folder / "result.json").read_text())
    assert "pictures" not in printed, "for the eye, not for a pipe"
    first = record["pictures"][0]
    assert (first["title"], first["caption"]) == (record["known_samples"][0]["name"], "labelled ape")
    shown = Image.open(io.BytesIO(base64.b64decode(first["png_base64"])))
    assert shown.tobytes() == Image.open(case_on_disk / "train" / first["title"]).tobytes()
    assert len(record["pictures"]) == 8


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 200, 100), (48, 96)), ((1, 300, 300), (96, 96)), ((1, 28, 28), (28, 28))]
)
def test_large_pictures_become_small(shape, size):
    picture = Image.open(io.BytesIO(base64.b64decode(png(torch.zeros(shape, dtype=torch.uint8)))))
    assert picture.size == size


def test_the_clean_accuracy_of_other_stopping_points_is_measured(case_on_disk, heal, healed, tmp_path):
    folder, record = healed
    curve, trace = record["curve"], record["trace"]
    assert 2 < len(curve) <= 16 <= len(trace)
    assert [curve[0]["s"], curve[-1]["s"]] == [trace[0]["s"], trace[-1]["s"]]
    seen = {step["s"]: (step["selected"], 100 * step["known_accuracy"]) for step in trace}
    assert all((point["weights"], point["known"]) == seen[point["s"]] for point in curve)
    at = {point["s"]: point["clean"] for point in curve}
    assert at[record["chosen"]["s"]] == record["scores"]["after"]["clean_accuracy"]
    milder = json.loads(heal(**{**FROM, "from": folder, "rho": 0.6, "json": True}).stdout)
    assert milder["curve"] == curve
    assert json.loads(heal(json=True, out=tmp_path / "unscored").stdout)["curve"] == []


def test_another_choice_has_a_page_of_its_own(heal, healed, tmp_path):
    folder, _ = healed
    heal(**{**FROM, "from": folder, "rho": 0.6})
    html = (tmp_path / "out" / "report.html").read_text()
    assert html.count("<img ") == 8
    assert "not measured" in html


def test_a_page_that_cannot_be_made_does_not_cost_the_heal(heal, monkeypatch, tmp_path):
    def broken(record, folder):
        raise KeyError("layers")

    monkeypatch.setattr("potion.report.heal_view.heal_page", broken)
    done = heal()
    assert "potion: no report.html: KeyError: 'layers'" in done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES - {"report.html"}


def test_settings_of_the_search(heal, healed, tmp_path):
    options = {"strategy": "bisect", "step": 1.2, "retain-share": 0.5, "json": True}
    record = json.loads(heal(**options).stdout)
    assert (record["search"]["strategy"], record["search"]["step"]) == ("bisect", 1.2)
    assert record["inputs"]["retain_share"] == 0.5
    assert len(record["trace"]) < len(healed[1]["trace"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"step": 1}, "potion: --step must be above 1"),
        ({"strategy": "guess"}, "potion: --strategy must be one of sequential, bisect, got 'guess'"),
        ({"retain-share": 0}, "--retain-share 0: give a part of the data"),
    ],
)
def test_settings_that_make_no_sense(heal, changed, words):
    refused(heal(2, **changed), words)


def test_what_should_be_known_before_a_repair_is_trusted(heal, case_on_disk, tmp_path):
    one = (case_on_disk / "poison.txt").read_text().splitlines()[1]
    (tmp_path / "one.txt").write_text(one)
    done = heal(known=tmp_path / "one.txt", out=tmp_path / "first")
    said = json.loads((tmp_path / "first" / "result.json").read_text())["warnings"]
    for place, words in enumerate(("Only one poisoned sample", "only 5 batches of 32", "Nothing was measured")):
        assert words in said[place]
    assert all(f"Note: {each}" in done.stdout for each in said)
    assert "Look at this first" in (tmp_path / "first" / "report.html").read_text()
    settings = {"batch-size": 6, "clean": "clean", "triggered": "triggered", "out": tmp_path / "second"}
    heal(**settings)
    assert json.loads((tmp_path / "second" / "result.json").read_text())["warnings"] == []


def test_an_antidote_shows_what_it_found(heal, tmp_path):
    printed = json.loads(heal(method="antidote", json=True).stdout)
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert record["status"] == "healed", record["summary"]
    titles = [picture["title"] for picture in record["pictures"]]
    assert titles[:5] == ["Poisoned sample", "The trigger", "Transplant", "Transplant", "Transplant"]
    grey = Image.open(io.BytesIO(base64.b64decode(record["pictures"][1]["png_base64"])))
    others = [colour for count, colour in grey.getcolors() if count < 50]
    assert sum(count for count, _ in grey.getcolors() if count < 50) == printed["treatment"]["triggers"][0]["size"]
    assert others, "the trigger alone is not grey"
    assert {row["index"] for row in record["suspects"]} == {int(index) for index in record["treatment"]["corrected"]}
    assert all(row["believed"] != row["label"] == "ape" for row in record["suspects"])
    html = (tmp_path / "out" / "report.html").read_text()
    assert html.count("<img ") == len(titles)
    assert 'id="suspects"' in html
