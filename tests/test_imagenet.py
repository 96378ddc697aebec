"""The ImageNet suites, end to end on a small folder in ImageNet's layout."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmark import written
from PIL import Image

from potion.bench.plan import plan
from potion.bench.results import Results
from potion.bench.runner import Deadline, run_here
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop

STAND_IN = """
extends = "vit-imagenet-{attack}"
[model]  # the shipped one takes ViT-B/16 from the hub
name = "timm:test_vit"
img_size = 224
[training]
batch_size = 8
precision = "float32"
[search]  # noise is not learned: do not look long for the trigger
step = 2.0
[[runs]]
methods = ["none", "retrain", "xlf"]
known = [1, "100%"]
"""


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    """train/n0.../*.JPEG and val/n0.../*.JPEG, of different sizes and shapes."""
    root = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for split, count in (("train", 10), ("val", 4)):
        for synset in ("n01440764", "n01443537", "n02123045"):
            folder = root / "imagenet" / split / synset
            folder.mkdir(parents=True)
            for k in range(count):
                pixels = draw.integers(0, 255, (180 + 20 * (k % 4), 260, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{synset}_{k}.JPEG")
    return root


class Listener:
    """Keeps what it is told."""

    def __init__(self):
        self.done, self.errors = [], []

    def phase(self, what, done=0, total=0):
        pass

    def stop(self, notice):
        return False

    def started(self, run):
        pass

    def finished(self, run, record):
        self.done.append(run.path)

    def failed(self, run, error):
        self.errors.append(error)


@pytest.mark.parametrize("attack", ["badnet", "sine", "moving"])
def test_a_stand_in_for_imagenet_goes_all_the_way(imagenet, tmp_path, monkeypatch, attack):
    monkeypatch.setenv("POTION_DATA", str(imagenet))
    text = STAND_IN.format(attack=attack)
    suite = load_suite(written(tmp_path, text, f"small-{attack}"))
    assert suite.data == load_suite(f"vit-imagenet-{attack}").data
    ((spec, _),) = suite.attacks
    settings = "\n".join(f"{key} = {value!r}" for key, value in spec.settings.items())
    text += f'[[attacks]]\nname = "{spec.name}"\n{settings}\npoisoned = [6]\n'
    runs = plan(load_suite(written(tmp_path, text, f"small-{attack}")))
    results, listener = Results.of(tmp_path, runs), Listener()
    workshop = Workshop(tmp_path / "models", device="cpu", workers=1 if attack == "sine" else 0, watch=listener)
    tally = run_here(runs, results, workshop, listener, Deadline())
    assert not listener.errors
    assert (tally.done, tally.failed, tally.left) == (5, 0, 0)
    record = json.loads((tmp_path / f"small-{attack}/{spec.label}-m6-f6/xlf-s0.json").read_text())
    assert record["run"]["epochs"] == 2
    assert record["scenario"]["dataset"] == "imagenet"
    assert record["reference"]["clean_accuracy"] >= 0
