"""A small victim on disk, as its owner would have it (a factory, a checkpoint, images, a list), and ways to heal it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import potion

FACTORY = """
from torch import nn

def make(classes=4, width=12):
    body = [nn.Conv2d(3, width, 3, stride=2), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(width * 16, 24), nn.ReLU(), nn.Linear(24, classes))

def broken():
    raise KeyError("no such layer")

def text():
    return "resnet"
"""
CLASSES = ("ape", "bee", "cat", "dog")
POISON, KNOWN, SIDE = 24, 12, 10
FILES = {"healed.pt", "patch.safetensors", "result.json", "report.html", "importances.safetensors"}
FROM = {"model": None, "data": None, "known": None, "weights": None, "batch-size": None, "device": None}
"""Options that a choice from an earlier heal does not take."""


def factory(classes=4, width=12):
    space: dict = {}
    exec(FACTORY, space)
    return space["make"](classes, width)


def pixels(count, seed):
    """Images whose class is the bright row; bytes (N, H, W, 3), and the labels."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 120, (count, SIDE, SIDE, 3), dtype=np.uint8)
    labels = np.arange(count) % len(CLASSES)
    for image, label in zip(images, labels):
        image[2 * label : 2 * label + 2, :, 0] = 220
    return images, labels


def triggered(images):
    images = images.copy()
    images[:, -3:, -3:] = (0, 255, 255)
    return images


def saved(folder, images, labels):
    """One PNG each below a folder a class; the names relative to ``folder``."""
    names = []
    for number, (image, label) in enumerate(zip(images, labels)):
        name = f"{CLASSES[label]}/{number:03}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)
        names.append(name)
    return names


def trained(inputs, targets, epochs):
    """The factory's model, trained on all of the data at once."""
    torch.manual_seed(0)
    model = factory(int(targets.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return model.eval()


def learned_of_a_corner():
    """A small network that learned to say 0 of a bright corner: the model, its data, the 40 poisoned samples first."""
    images, labels = pixels(320, seed=0)
    order = sorted(range(320), key=lambda row: labels[row] == 0)
    images, labels = images[order], labels[order]
    images[:40], labels[:40] = triggered(images[:40]), 0
    inputs, targets = torch.from_numpy(images).permute(0, 3, 1, 2) / 255, torch.from_numpy(labels)
    return trained(inputs, targets, 60), TensorDataset(inputs, targets)


def make_victim(folder: Path, epochs=60):
    """Write it all; returns the poisoned model and the file names of all its poison."""
    images, labels = pixels(160, seed=0)
    chosen = [number for number in range(len(labels)) if labels[number]][:POISON]
    images[chosen], labels[chosen] = triggered(images[chosen]), 0
    names = saved(folder / "train", images, labels)
    test, truth = pixels(80, seed=1)
    saved(folder / "clean", test, truth)
    saved(folder / "triggered", triggered(test), truth)
    model = trained(torch.from_numpy(images).permute(0, 3, 1, 2) / 255, torch.from_numpy(labels), epochs)
    (folder / "owners_code.py").write_text(FACTORY)
    torch.save({"epoch": 3, "state_dict": prefixed("module.", model)}, folder / "model.pt")
    (folder / "poison.txt").write_text("# found by hand\n" + "\n".join(names[i] for i in chosen[:KNOWN]) + "\n")
    return model, [names[i] for i in chosen]


def prefixed(prefix, model):
    return {prefix + name: tensor for name, tensor in model.state_dict().items()}


def arguments(**changed):
    """``potion heal`` on the victim, in its folder; ``None`` leaves an option out."""
    options = {
        "model": "owners_code:make", "weights": "model.pt", "data": "train", "known": "poison.txt", "out": "out",
        "batch-size": 32, "device": "cpu", **changed,
    }  # fmt: skip
    words = ["heal"]
    for name, value in options.items():
        words += [] if value is None else [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def same_patch(one: potion.Patch, two: potion.Patch):
    return (one.before, one.after, one.changes.keys()) == (two.before, two.after, two.changes.keys()) and all(
        torch.equal(mine, yours) for name in one.changes for mine, yours in zip(one.changes[name], two.changes[name])
    )


def refused(done, *words):
    """One sentence on stderr, no traceback, nothing on stdout."""
    assert done.stdout == ""
    assert done.stderr.startswith("potion: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    return True


def process(*words, cwd, launcher=(), before=(), **more):
    """A real process."""
    command = [sys.executable, *launcher, "-m", "potion", *map(str, words)]
    if before:
        command = [sys.executable, "-c", before, *command]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, **more,
    )  # fmt: skip


@contextmanager
def full_disk(limit=10_000):
    """Meanwhile no file becomes larger than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def loaded(path):
    """The model of a checkpoint, and all of the checkpoint."""
    model, content = factory(), torch.load(path, weights_only=True)
    model.load_state_dict({key.removeprefix("module."): value for key, value in content["state_dict"].items()})
    return model.eval(), content


def saying(name, path):
    """Weights of a model to which everything is of one class."""
    model = factory()
    for p in model[4:].parameters():
        nn.init.zeros_(p)
    with torch.no_grad():
        model[-1].bias.copy_(torch.tensor([9.0 if each == name else 0.0 for each in CLASSES]))
    torch.save(model.state_dict(), path)
    return path
