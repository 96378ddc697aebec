"""``potion heal`` on bad input, a full disk and Ctrl-C: one clear sentence, the right exit code, nothing lost."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from victim import FROM, arguments, factory, full_disk, process, refused, saying

from potion.repair.case import open_case
from potion.repair.folder import all_or_nothing
from potion.repair.settings import Settings


def test_a_hugging_face_folder_says_what_it_needs(heal, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)  # as where it is not installed
    (tmp_path / "config.json").write_text("{}")
    refused(heal(2, model=tmp_path), "which needs transformers: pip install transformers")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "owners_code:broken"}, ["owners_code:broken", "raised KeyError: 'no such layer'"]),
        ({"model": "owners_code:text"}, ["returned str, not a torch.nn.Module"]),
        ({"model": "owners_code:nothing"}, ["owners_code has no 'nothing'"]),
        ({"model": "no_such_package.models:make"}, ["there is no module 'no_such_package'"]),
        ({"model": "owners_code:make", "model-arg": "depth=3"}, ["make(depth=3) raised TypeError"]),
        ({"model-arg": "width"}, ["--model-arg width", "name=value"]),
        ({"model": "owners_code"}, ["name the function in it that makes the model, like owners_code:make"]),
        ({"model": "owners_code.py"}, ["like owners_code:make"]),
        ({"model": "no_such_model"}, ["--model no_such_model", "resnet9"]),
        ({"model": "resnet9", "model-arg": "depth=3"}, ["--model resnet9", "depth"]),
        ({"model": "resnet9", "weights": None}, ["--weights is missing"]),
        ({"model-arg": "width=5"}, ["does not fit the model", "0.bias has the shape (12,), the model wants (5,)"]),
        ({"model-arg": "classes=7"}, ["6.bias has the shape (4,), the model wants (7,)"]),
        ({"weights": "nothing.pt"}, ["--weights nothing.pt: there is no such file"]),
        ({"data": "nothing"}, ["--data: no dataset 'nothing'"]),
        ({"known": "nothing.txt"}, ["--known nothing.txt: no such file"]),
        ({"known": None}, ["--known is missing", "--help"]),
        ({"known": "999"}, ["index 999"]),
        ({"method": "magic"}, ["--method magic", "xlf, lf, ssd"]),
        ({"rho": 1.5}, ["--rho 1.5"]),
        ({"device": "abacus"}, ["device 'abacus'"]),
        ({"clean": "nothing"}, ["--clean: no dataset 'nothing'"]),
        ({"model": "test_resnett"}, ["some with a similar name: test_resnet"]),
        ({"model": "timm:test_resnett"}, ["timm has no model 'test_resnett'; some with a similar name: test_resnet"]),
        ({"size": 4}, ["fails on an image of --data (3x4x4): RuntimeError", "--size"]),
        ({"out": None}, ["--out is missing"]),
        ({"weights": "."}, ["--weights .: a folder; name the file in it"]),
        ({"known": "."}, ["--known .: a folder; give a text"]),
        ({"padding": 10}, ["--padding 10: the images have 10 pixels"]),
        ({"mean": "0,0,0", "std": "1"}, ["--mean has 3 values and --std 1"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_exit_code_two(heal, tmp_path, changed, words):
    refused(heal(2, **changed), *words)
    assert not (tmp_path / "out").exists()


MODEL = (
    "import torch\nclass make(torch.nn.Linear):\n def __init__(self): super().__init__(300, 4)\n def forward(self, x): "
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (MODEL + "return super().forward(x.flatten(1)), x", "returns only the logits\n"),
        (MODEL + "raise RuntimeError('expected 1 channels')", "have 3: store grey ones as RGB for a model that wants"),
        ("import sys; sys.exit(0)", "importing odd_code failed: SystemExit: 0"),
        ("import os; os.no_such_thing", "importing odd_code failed: AttributeError: module 'os' has no attribute"),
        ("def make(): raise SystemExit", "make() raised SystemExit"),
        (MODEL + "assert False", "fails on an image of --data (3x10x10): AssertionError; --size"),
        (MODEL + "raise SystemExit(0)", "fails on an image of --data (3x10x10): SystemExit: 0; --size"),
    ],
)
def test_whatever_the_owners_code_does(heal, tmp_path, monkeypatch, code, words):
    monkeypatch.delitem(sys.modules, "odd_code", raising=False)
    (tmp_path / "odd_code.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    refused(heal(2, model="odd_code:make", weights=None), "--model odd_code:make", words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet18", "vit"])
def test_a_timm_that_cannot_be_imported(heal, tmp_path, monkeypatch, name):
    for module in [each for each in sys.modules if each.split(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, module)
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist\\nand so on')")
    monkeypatch.syspath_prepend(tmp_path)
    words = (
        "timm could not be imported: RuntimeError: operator torchvision::nms does not exist; torch and torchvision are "
    )
    refused(heal(2, model=name), f"--model {name}: ", words)


@pytest.fixture
def three_folders(case_on_disk, tmp_path):
    """The training data without the folder of its last class."""
    return shutil.copytree(case_on_disk / "train", tmp_path / "train", ignore=shutil.ignore_patterns("dog"))


def test_fewer_classes_than_logits(heal, three_folders, tmp_path):
    (tmp_path / "one.txt").write_text(next((three_folders / "ape").iterdir()).name)
    changed = {"data": three_folders, "known": tmp_path / "one.txt", "dry-run": True}
    done = heal(2, **changed)
    refused(
        done, f"--data {three_folders} has 3 classes, but the model has 4 logits", "an empty folder keeps the place"
    )
    (three_folders / "dog").mkdir()
    heal(**changed)


@pytest.mark.parametrize("option", ["clean", "triggered"])
def test_images_to_score_on_that_do_not_fit(case_on_disk, heal, tmp_path, option):
    for kind, changed in (("grey", lambda image: image.convert("L")), ("large", lambda image: image.resize((12, 12)))):
        (tmp_path / kind / "ape").mkdir(parents=True)
        with Image.open(next((case_on_disk / "clean" / "ape").iterdir())) as image:
            changed(image).save(tmp_path / kind / "ape" / "1.png")
    refused(heal(2, **{option: tmp_path / "grey"}), f"fails on an image of --{option} (1x10x10)")
    refused(heal(2, **{option: tmp_path / "large"}), f"fails on an image of --{option} (3x12x12)", "--size brings")
    normalised = {"mean": "0,0,0", "std": "1,1,1", option: tmp_path / "grey"}
    refused(heal(2, **normalised), f"--{option}: --mean and --std have 3 values, but the images have 1 channels")


def hub_folder(path, **settings):
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is no dependency")
    small = {"num_channels": 3, "embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"}
    names = settings.pop("names", ("ape", "bee", "cat", "dog"))
    config = transformers.ResNetConfig(**small, id2label=dict(enumerate(names)))
    transformers.ResNetForImageClassification(config).save_pretrained(path, **settings)
    return path


def test_the_classes_of_a_hugging_face_folder_are_those_of_the_data(case_on_disk, three_folders, tmp_path):
    turned = hub_folder(tmp_path / "turned", names=("dog", "bee", "cat", "ape", "eel"))
    for data in (case_on_disk / "train", three_folders):
        settings = Settings(model=str(turned), data=str(data), known="0")
        case = open_case(settings, torch.device("cpu"))
        classes = [case.train.classes[label] for label in case.train.labels]
        assert case.train.classes == ("dog", "bee", "cat", "ape", "eel"), "numbered as the model does"
        assert classes == [Path(file).parent.name for file in case.files]


def test_a_hugging_face_folder_that_does_not_fit(heal, tmp_path):
    others = hub_folder(tmp_path / "others", names=("ape", "bee", "cat", "eel"))
    refused(
        heal(2, model=others, weights=None), "--data train: there is no class 'dog' in --model", "ape, bee, cat, ..."
    )
    many = hub_folder(tmp_path / "many", max_shard_size="2KB")
    refused(heal(2, model=many, weights=None), "several files (model.safetensors.index.json)", "max_shard_size")
    (tmp_path / "config.json").write_text('{"model_type": "no such"}')
    refused(heal(2, model=tmp_path), f"--model {tmp_path}: transformers could not build the model: ValueError")


def test_more_classes_than_logits(case_on_disk, heal, tmp_path):
    torch.save(factory(classes=3).state_dict(), tmp_path / "three.pt")
    done = heal(2, **{"weights": tmp_path / "three.pt", "model-arg": "classes=3"})
    refused(done, "--data train has 4 classes, but the model has 3 logits")


def test_an_image_that_cannot_be_decoded_is_named(case_on_disk, heal, tmp_path):
    shutil.copytree(case_on_disk / "train", tmp_path / "train")
    broken = sorted((tmp_path / "train" / "cat").iterdir())[2]
    broken.write_bytes(broken.read_bytes()[:60])
    refused(heal(2, data=tmp_path / "train"), str(broken), "cannot be decoded")


class Malicious:
    def __reduce__(self):
        import pathlib

        return pathlib.Path.touch, (pathlib.Path("executed"),)


def test_a_malicious_pickle_is_refused(case_on_disk, heal, tmp_path):
    torch.save({"state_dict": {"a": Malicious()}}, tmp_path / "bad.pt")
    refused(heal(2, weights=tmp_path / "bad.pt"), "could run code, and was refused; nothing was executed")
    assert not (case_on_disk / "executed").exists()


def test_inputs_are_never_written_over(case_on_disk, heal, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "healed.pt").write_bytes((case_on_disk / "model.pt").read_bytes())
    refused(heal(2, weights=tmp_path / "out" / "healed.pt", force=True), "is read by this command")
    (tmp_path / "file").write_text("in the way")
    refused(heal(2, out=tmp_path / "file" / "out"), "cannot write to the folder")


def test_weights_may_have_any_name(case_on_disk, heal, tmp_path):
    """healed.tar is written where the weights are a .tar, so one that is read or left from before is known as well."""
    for place in (tmp_path / "out" / "healed.tar", tmp_path / "model.tar", tmp_path / "bare"):
        place.parent.mkdir(exist_ok=True)
        shutil.copy(case_on_disk / "model.pt", place)
    refused(heal(2, weights=tmp_path / "out" / "healed.tar"), "out/healed.tar is read by this command")
    refused(heal(2, weights=tmp_path / "model.tar"), "already holds healed.tar")
    (tmp_path / "out" / "healed.png").write_text("mine")
    for weights, name in ((tmp_path / "model.tar", "healed.tar"), (tmp_path / "bare", "healed")):
        heal(weights=weights, force=True, quiet=True)
        assert {path.name for path in (tmp_path / "out").iterdir()} == {
            name, "healed.png", "patch.safetensors", "importances.safetensors", "result.json", "report.html",
        }  # fmt: skip
    heal(3, weights=saying("bee", tmp_path / "deaf.pt"), force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["healed.png", "report.html", "result.json"]


def test_brackets_and_colons_in_names_are_shown_as_they_are(heal, tmp_path):
    for name in ("runs[v2]", "o[/a]", "a:bomb:"):
        assert f"written: {tmp_path / name}/healed.pt" in heal(out=tmp_path / name).stdout


MOODY = """
import owners_code
from torch import nn

class Moody(nn.Sequential):
    def forward(self, x):
        if len(x) > 1:
            raise KeyError("stage4")
        return super().forward(x)

def make():
    return Moody(*owners_code.make())
"""


def test_a_model_that_fails_later_on(case_on_disk, heal, tmp_path, monkeypatch):
    (tmp_path / "moody.py").write_text(MOODY)
    monkeypatch.syspath_prepend(case_on_disk)
    monkeypatch.syspath_prepend(tmp_path)
    for more in ({}, {"dry-run": True}, {"clean": "clean"}):
        done = heal(2, model="moody:make", **more)
        refused(done, "KeyError: 'stage4'", f"raised in {tmp_path / 'moody.py'}, line 8")
    assert not (tmp_path / "out").exists()


FULL_DISK = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_full_disk_leaves_all_as_it_was(case_on_disk, heal, tmp_path):
    heal(quiet=True)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    run = process(*arguments(out=tmp_path / "out", force=True, rho=0.5), cwd=case_on_disk, before=FULL_DISK)
    out, error = run.communicate(timeout=120)
    assert (run.returncode, out) == (2, ""), error
    assert error.startswith(f"potion: cannot write to {tmp_path / 'out'}, where all is as it was")
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_full_disk_is_told_from_what_torch_says_about_it(heal, healed, tmp_path):
    with full_disk():
        done = heal(2, **{**FROM, "from": healed[0]})
    refused(done, "where all is as it was: cannot write healed.pt: no space left, or the disk is broken")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def heard():
    """Ctrl-C is heard, also where the tests themselves run in the background, which is deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_does_not_come_between_the_files(tmp_path, monkeypatch):
    """All of them are moved in, and only then it is heard."""
    moved = Path.replace

    def interrupted(self, target):
        moved(self, target)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Path, "replace", interrupted)
    (tmp_path / "c").write_text("old")

    def write():
        with all_or_nothing(tmp_path, [tmp_path / "c"]) as partial:
            for name in "ab":
                (partial / name).write_text("new")

    with pytest.raises(KeyboardInterrupt, match="all had been written"):
        write()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SLOW = """
import pathlib, time, owners_code
from torch import nn

class Slow(nn.Sequential):
    def forward(self, x):
        pathlib.Path("started").touch()
        time.sleep(0.3)
        return super().forward(x)

def make():
    return Slow(*owners_code.make())
"""


@pytest.mark.usefixtures("heard")
def test_ctrl_c_leaves_nothing(case_on_disk, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "owners_code.py").write_text((case_on_disk / "owners_code.py").read_text())
    inputs = {name: case_on_disk / path for name, path in (("weights", "model.pt"), ("data", "train"))}
    words = arguments(model="slow:make", known=case_on_disk / "poison.txt", out=tmp_path / "new" / "out", **inputs)
    run = process(*words, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    out, error = run.communicate(timeout=60)
    assert (run.returncode, out) == (130, ""), error
    assert error == "potion: stopped; nothing was written\n"
    assert not (tmp_path / "new").exists()
