"""``potion heal`` from files to files: what it writes, what it says, how it ends."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from backdoor import same
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner
from victim import (
    CLASSES,
    FILES,
    FROM,
    KNOWN,
    arguments,
    loaded,
    prefixed,
    process,
    refused,
    same_patch,
    saying,
)

import potion
from potion.cli import app
from potion.data import FolderFiles, ImageSet, View
from potion.metrics import accuracy
from potion.models import resnet9, timm_model
from potion.repair.seen import Seen


def test_it_does_what_the_library_does(case_on_disk, healed):
    folder, _ = healed
    victim, _ = loaded(case_on_disk / "model.pt")
    images = ImageSet.decoded(FolderFiles(case_on_disk / "train"))
    names = FolderFiles(case_on_disk / "train").names()
    listed = (case_on_disk / "poison.txt").read_text().splitlines()[1:]
    known = [names.index(str(case_on_disk / "train" / name)) for name in listed]
    expected = potion.heal(victim, images, known, batch_size=32, device="cpu", progress=False)
    assert expected.status is potion.Status.HEALED
    assert same_patch(potion.Patch.load(folder / "patch.safetensors"), expected.patch)
    model, content = loaded(folder / "healed.pt")
    assert same(model, expected.model)
    assert content["epoch"] == 3, "all else in the checkpoint stays"
    assert all(key.startswith("module.") for key in content["state_dict"])
    assert {path.name for path in folder.iterdir()} == FILES


def test_the_record_tells_the_whole_story(case_on_disk, healed):
    folder, printed = healed
    record = json.loads((folder / "result.json").read_text())
    assert {**record, "pictures": None} == {**printed, "pictures": None}
    assert (record["status"], record["known"], record["samples"]) == ("healed", KNOWN, 160)
    assert record["classes"] == list(CLASSES)
    first = (case_on_disk / "poison.txt").read_text().splitlines()[1]
    assert {key: record["known_samples"][0][key] for key in ("name", "class")} == {"name": first, "class": "ape"}
    assert sum(layer["changed"] for layer in record["layers"]) == record["weights_changed"] > 0
    assert all(0 <= layer["least_factor"] <= layer["mean_factor"] < 1 for layer in record["layers"])
    assert record["inputs"]["model"] == "owners_code:make"
    assert record["provenance"]["versions"]["potion"] == potion.__version__
    before, after = record["scores"]["before"], record["scores"]["after"]
    assert before["attack_success_rate"] > 90 > 40 > after["attack_success_rate"]
    assert after["clean_label_accuracy"] > before["clean_label_accuracy"] + 40
    model, _ = loaded(folder / "healed.pt")
    assert after["clean_accuracy"] == accuracy(model, ImageSet.decoded(FolderFiles(case_on_disk / "clean")))


def test_text_for_people_and_silence(heal, tmp_path):
    done = heal()
    assert "xlf: healed;" in done.stdout
    assert "4.weight" in done.stdout
    assert f"written: {tmp_path / 'out' / 'healed.pt'}" in done.stdout
    assert "\x1b" not in done.stdout
    quiet = heal(quiet=True, out=tmp_path / "quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert {path.name for path in (tmp_path / "quiet").iterdir()} == FILES


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(heal, tmp_path):
    plan = json.loads(heal(**{"dry-run": True, "json": True}).stdout)
    assert (plan["weights"], plan["samples"], plan["classes"]) == (5092, 160, 4)
    assert (plan["known"], plan["known_obeying"]) == (KNOWN, KNOWN)
    assert plan["seconds"] > 0
    text = heal(**{"dry-run": True, "out": None}).stdout
    assert "160 images of 3x10x10" in text
    assert f"{KNOWN}, of which {KNOWN} obey" in text
    assert "until at most 20% of that are left" in text
    refused(heal(2, **{"dry-run": True, "clean": "nothing"}), "no dataset 'nothing'")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_knows_that_an_antidote_takes_longer(heal):
    plan = json.loads(heal(**{"dry-run": True, "json": True, "method": "antidote"}).stdout)
    again, masks = (3 * 1.5 + 2 * 4) * 160, 2 * 100 * 32 * KNOWN
    assert plan["batches"] == math.ceil((again + masks) / 32)
    assert json.loads(heal(**{"dry-run": True, "json": True}).stdout)["batches"] == 5 + 1
    assert "are left" not in heal(**{"dry-run": True, "method": "antidote"}).stdout


def test_a_dry_run_refuses_the_folder_that_the_heal_would(heal, healed):
    folder, _ = healed
    refused(heal(2, **{"dry-run": True, "out": folder}), "already holds healed.pt", "--force")
    heal(**{"dry-run": True, "out": folder, "force": True})


@pytest.fixture
def deaf(tmp_path):
    """A model that calls none of the poison by its label, ape: there is no trigger to find."""
    return saying("bee", tmp_path / "deaf.pt")


def test_not_healed_is_exit_code_three_and_no_weights(heal, deaf, tmp_path):
    done = heal(3, weights=deaf)
    assert "not learned" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"result.json", "report.html"}
    assert json.loads((tmp_path / "out" / "result.json").read_text())["status"] == "not_learned"
    refused(heal(2, **{**FROM, "from": tmp_path / "out", "out": tmp_path / "again"}), "nothing to choose from")


def test_a_failed_heal_does_not_leave_an_earlier_one_beside_it(heal, deaf, tmp_path):
    heal(quiet=True)
    refused(heal(2), "already holds healed.pt", "--force")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    heal(3, weights=deaf, force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["notes.txt", "report.html", "result.json"]


def test_half_precision_files_stay_half_and_can_be_undone(case_on_disk, heal, tmp_path):
    victim, _ = loaded(case_on_disk / "model.pt")
    half = {key: t.half() if t.is_floating_point() else t for key, t in victim.state_dict().items()}
    save_file(half, tmp_path / "half.safetensors")
    heal(weights=tmp_path / "half.safetensors")
    healed = load_file(tmp_path / "out" / "healed.safetensors")
    assert all(healed[key].dtype == half[key].dtype for key in half)
    assert any(not torch.equal(healed[key], half[key]) for key in half)
    words = ["patch", "revert", tmp_path / "out" / "patch.safetensors", tmp_path / "out" / "healed.safetensors"]
    done = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "back.safetensors")])
    assert done.exit_code == 0, done.output
    back = load_file(tmp_path / "back.safetensors")
    assert all(torch.equal(back[key], half[key]) for key in half)


def test_a_factory_that_brings_its_weights(case_on_disk, heal, tmp_path, monkeypatch):
    (tmp_path / "brings_weights.py").write_text(
        "import torch, owners_code\n"
        "class PreTrainedModel(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.net = owners_code.make()\n"
        f"        state = torch.load({str(case_on_disk / 'model.pt')!r}, weights_only=True)['state_dict']\n"
        "        self.net.load_state_dict({key[7:]: value for key, value in state.items()})\n"
        "    def forward(self, pixel_values=None):\n"
        "        class Output:\n"
        "            logits = self.net(pixel_values)\n"
        "        return Output()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(case_on_disk)
    heal(model="brings_weights:PreTrainedModel", weights=None)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "original.safetensors", "healed.safetensors", "patch.safetensors", "importances.safetensors", "result.json",
        "report.html",
    }  # fmt: skip
    assert "net.0.weight" in load_file(tmp_path / "out" / "healed.safetensors"), "its own names"
    heal(**{**FROM, "from": tmp_path / "out", "rho": 0.2, "out": tmp_path / "again"})


@pytest.mark.parametrize(
    ("name", "make", "extra"),
    [
        ("resnet9", lambda: resnet9(4, width=4), {"model-arg": "width=4"}),
        ("timm:test_resnet", lambda: timm_model("test_resnet", 4)[1], {}),
        ("test_resnet", lambda: timm_model("test_resnet", 4), {}),
    ],
)
def test_models_by_name(heal, tmp_path, name, make, extra):
    """Those of timm fit timm's own checkpoints, and potion's, which have the normalisation in front."""
    torch.save(make().state_dict(), tmp_path / "model.pt")
    changed = {"model": name, "weights": tmp_path / "model.pt", "size": 32, "dry-run": True, "json": True, **extra}
    plan = json.loads(heal(**changed).stdout)
    assert plan["image"] == [3, 32, 32]
    assert (plan["mean"] is None) == (name == "resnet9"), "timm's models want timm's normalisation"


def test_a_hugging_face_folder(heal, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is no dependency")
    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic", num_labels=4
    )
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "hub")
    plan = json.loads(heal(**{"model": tmp_path / "hub", "weights": None, "dry-run": True, "json": True}).stdout)
    assert plan["known"] == KNOWN


def test_augmentation_and_normalisation_reach_the_model(case_on_disk, heal, tmp_path):
    heal(padding=1, flip=True, mean="0.1,0,0", std="0.9,1,1", seed=3)
    images, record = (
        ImageSet.decoded(FolderFiles(case_on_disk / "train")),
        json.loads((tmp_path / "out" / "result.json").read_text()),
    )
    seen = Seen(images, View(padding=1, flip=True), (0.1, 0, 0), (0.9, 1, 1))
    plain = images.get_batch(torch.tensor([7]))[0]
    torch.testing.assert_close(seen.plain().get_batch(torch.tensor([7]))[0][:, 0], (plain[:, 0] - 0.1) / 0.9)
    expected = potion.heal(
        loaded(case_on_disk / "model.pt")[0], seen, [sample["index"] for sample in record["known_samples"]],
        batch_size=32, device="cpu", progress=False, unaugmented=seen.plain(), seed=3,
    )  # fmt: skip
    assert same_patch(potion.Patch.load(tmp_path / "out" / "patch.safetensors"), expected.patch)
    refused(heal(2, mean="0.5,0.5,0.5", force=True), "--mean and --std belong together")
    refused(
        heal(2, mean="0.5", std="0.5", force=True), "--mean and --std have 1 values, but the images have 3 channels"
    )
    refused(heal(2, mean="a", std="0.5", force=True), "give one number a channel")
    refused(heal(2, mean="0", std="0", force=True), "--std must be positive")


def test_classes_of_the_test_data_are_matched_by_name(case_on_disk, heal, tmp_path):
    (tmp_path / "test" / "dog").mkdir(parents=True)
    picture = sorted((case_on_disk / "clean" / "dog").iterdir())[0]
    (tmp_path / "test" / "dog" / "1.png").write_bytes(picture.read_bytes())
    record = json.loads(heal(clean=tmp_path / "test", json=True).stdout)
    assert record["scores"]["before"]["clean_accuracy"] == 100, "the only folder is class 3, not class 0"
    assert record["scores"]["before"]["attack_success_rate"] is None
    (tmp_path / "test" / "emu").mkdir()
    (tmp_path / "test" / "emu" / "1.png").write_bytes(picture.read_bytes())
    refused(heal(2, clean=tmp_path / "test", out=tmp_path / "b"), "no class 'emu' in the training data")


def test_two_processes_give_the_answer_of_one(case_on_disk, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    alone = process(*arguments(out=tmp_path / "alone"), cwd=case_on_disk)
    many = process(*arguments(out=tmp_path / "many", json=True), cwd=case_on_disk, launcher=launcher)
    bad = process(*arguments(out=tmp_path / "bad", data="nothing"), cwd=case_on_disk, launcher=launcher)
    for run in (alone, many, bad):
        run.out, run.err = run.communicate(timeout=120)
    assert (alone.returncode, many.returncode) == (0, 0), alone.err + many.err
    assert json.loads(many.out)["provenance"]["processes"] == 2, "one of them spoke, once"
    patches = [potion.Patch.load(tmp_path / name / "patch.safetensors") for name in ("alone", "many")]
    assert same_patch(*patches)
    assert same(loaded(tmp_path / "alone" / "healed.pt")[0], loaded(tmp_path / "many" / "healed.pt")[0])
    assert bad.returncode != 0
    assert bad.err.count("potion: --data: no dataset 'nothing'") == 1, bad.err
    assert "exitcode  : 2" in bad.err, "which torchrun, for its part, answers with 1"
    assert not (tmp_path / "bad").exists()


def test_help_teaches():
    done = CliRunner().invoke(app, ["heal", "--help"], env={"COLUMNS": "120", "TERM": "dumb"})
    for word in ("Example", "--known poison.txt", "--dry-run", "torchrun", "Exit code"):
        assert word in done.stdout


def test_prefixes_come_back_as_they_were(case_on_disk, heal, tmp_path):
    victim, _ = loaded(case_on_disk / "model.pt")
    content = {
        "state_dict": {**prefixed("model.", victim), "loss.weight": torch.ones(2)},
        "hyper_parameters": {"lr": 0.1},
    }
    torch.save(content, tmp_path / "lightning.ckpt")
    heal(weights=tmp_path / "lightning.ckpt")
    again = torch.load(tmp_path / "out" / "healed.ckpt", weights_only=True)
    assert again["state_dict"].keys() == content["state_dict"].keys()
    assert again["hyper_parameters"] == {"lr": 0.1}
    assert not torch.equal(again["state_dict"]["model.4.weight"], content["state_dict"]["model.4.weight"])


def test_parquet_is_healed_as_the_folder_is(case_on_disk, heal, healed, tmp_path):
    encoded = FolderFiles(case_on_disk / "train")
    rows = [{"bytes": encoded.read(index), "path": None} for index in range(len(encoded))]
    pq.write_table(pa.table({"image": rows, "label": encoded.labels.tolist()}), tmp_path / "train.parquet")
    record = json.loads((healed[0] / "result.json").read_text())
    known = ",".join(str(sample["index"]) for sample in record["known_samples"])
    heal(data=tmp_path / "train.parquet", known=known)
    assert same_patch(*(potion.Patch.load(folder / "patch.safetensors") for folder in (tmp_path / "out", healed[0])))
