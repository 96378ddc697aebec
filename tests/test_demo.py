"""The scientific test: the embedded victim is poisoned, retraining leaves it so, and XLF heals it, for three seeds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import potion
from potion.cli import app
from potion.demo import Demo
from potion.embedded import ASSETS, embedded_model, new_model
from potion.fingerprint import fingerprint
from potion.metrics import damage, evaluate, healed

FIELDS = {
    "method", "known", "status", "clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage",
    "steps", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def scores(embedded):
    names = "victim", "retrain_half", "retrain_clean"
    return {name: evaluate(embedded_model(name), embedded.test, embedded.attack) for name in names}


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("importances")


def test_the_assets_are_small_enough_to_ship():
    assert sum(file.stat().st_size for file in ASSETS.iterdir()) <= 8_000_000


def test_the_trigger_works_and_retraining_brings_it_back(scores):
    assert scores["victim"].clean_accuracy > 90
    assert scores["victim"].attack_success_rate > 99
    assert scores["retrain_half"].attack_success_rate > 99
    assert scores["retrain_clean"].attack_success_rate < 2
    assert scores["retrain_clean"].clean_label_accuracy > 90


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_xlf_heals_from_half_of_the_poison(embedded, victim, scores, cache, seed):
    result = potion.heal(
        victim,
        embedded.train_set(),
        embedded.known(100, seed),
        batch_size=embedded.recipe.batch_size,
        unaugmented=embedded.train_set().plain(),
        retain="all",
        cache=cache,
        progress=False,
    )
    found = evaluate(result.model, embedded.test, embedded.attack)
    assert result.status is potion.Status.HEALED
    assert healed(found, scores["retrain_clean"]) >= 85
    assert damage(found, scores["victim"]) >= -3


def potion_command(*arguments):
    return subprocess.run([sys.executable, "-m", "potion", *arguments], check=False, capture_output=True, text=True)


def test_the_demo_command(tmp_path, embedded):
    done = potion_command("demo", "--method", "ssd", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["method"], row["known"]) for row in rows] == [
        ("none", 0), ("retrain", 100),
        *((method, known) for known in (100, 20, 1) for method in ("ssd", "xlf")),
    ]  # fmt: skip
    assert all(set(row) >= FIELDS for row in rows)
    by = {(row["method"], row["known"]): row for row in rows}
    assert by["none", 0]["attack_success_rate"] > 99
    assert by["retrain", 100]["attack_success_rate"] > 99
    assert by["xlf", 100]["healed"] >= 85
    assert by["xlf", 100]["damage"] >= -3
    assert by["ssd", 1]["status"] == "saturated"
    assert by["ssd", 1]["damage"] == 0

    saved = json.loads((tmp_path / "result.json").read_text())
    assert {"commit", "time", "versions", "device"} <= saved["provenance"].keys()
    assert saved["rows"] == rows
    model = new_model()
    model.load_state_dict(load_file(tmp_path / "healed.safetensors"))
    patch = potion.Patch.load(tmp_path / "patch.safetensors")
    assert fingerprint(model) == patch.after
    patch.revert(model)
    assert fingerprint(model) == fingerprint(embedded_model("victim"))
    scores = evaluate(model, embedded.test, embedded.attack)
    assert scores.clean_label_accuracy == by["none", 0]["clean_label_accuracy"]
    with Image.open(tmp_path / "tradeoff.png") as picture:
        assert min(picture.size) > 400
    curve = saved["curve"]
    assert curve[0]["known"] > 90
    assert curve[-1]["known"] < 20
    assert curve[0]["clean"] > curve[-1]["clean"]


def test_an_unwritable_folder_is_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("potion: cannot write to the folder")
    assert done.stderr.count("\n") == 1


def test_the_demo_does_not_take_the_place_of_a_heal(tmp_path):
    def refused(*words):
        done = CliRunner().invoke(app, ["demo", *words])
        return done.exit_code == 2 and done.stderr.count("\n") == 1 and done.stderr

    (tmp_path / "result.json").write_text('{"method": "xlf"}')
    (tmp_path / "healed.safetensors").write_text("mine")
    assert "holds healed.safetensors, result.json, and not from a demo" in refused("--out", str(tmp_path))
    assert (tmp_path / "healed.safetensors").read_text() == "mine"
    (tmp_path / "result.json").write_text('{"rows": []}')
    Demo.check_free(tmp_path)
    assert refused("--out", str(tmp_path / "new"), "--method", "magic")
    assert not (tmp_path / "new").exists()


def test_the_attack_figure(tmp_path):
    done = potion_command("attacks", "--out", str(tmp_path / "attacks.png"))
    assert (done.returncode, done.stdout) == (0, f"written: {tmp_path / 'attacks.png'}\n"), done.stderr
    with Image.open(tmp_path / "attacks.png") as picture:
        assert picture.width > 4 * picture.height
        picture.convert("L").resize((64, 64)).save(tmp_path / "own.png")
    own = CliRunner().invoke(
        app, ["attacks", "--quiet", "--image", str(tmp_path / "own.png"), "--out", str(tmp_path / "own-attacks.png")]
    )
    assert (own.exit_code, own.stdout, own.stderr) == (0, "", "")
    (tmp_path / "text.png").write_text("no picture")
    own, new = str(tmp_path / "own.png"), tmp_path / "new" / "a.png"
    for wrong in (
        ["--image", str(tmp_path / "text.png"), "--out", str(new)],
        ["--out", f"{own}/a.png"],
        ["--image", own, "--out", own],
        ["--out", "a.txt"],
    ):
        done = CliRunner().invoke(app, ["attacks", *wrong])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    assert not new.parent.exists()


def test_help_teaches_and_version_tells():
    def said(*words):
        return CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})

    general = said("--help").stdout
    assert "demo" in general
    assert "only some of the poison is known" in general
    demo = said("demo", "--help").stdout
    for word in ("--out", "--seed", "--json", "--quiet", "healed", "damage"):
        assert word in demo
    assert potion_command("version").stdout == potion_command("--version").stdout == f"{potion.__version__}\n"
    for wrong in (["demo", "--seed", "many"], ["demo", "--seed", "-1"], ["cure"], ["demo", "--sed", "1"]):
        done = said(*wrong)
        assert done.exit_code == 2, wrong
        assert done.stderr


def test_the_victim_learned_with_the_trigger_after_augmentation(embedded, victim):
    """What the assets claim: all 200 poisoned training samples obey, as they stand in the training set."""
    inputs, labels = embedded.train_set().plain().get_batch(torch.tensor(embedded.poison()))
    with torch.no_grad():
        assert (victim(inputs).argmax(1) == labels).float().mean() > 0.99
