"""What the owner of a poisoned model has on disk: images in a folder a class, some of them poisoned, a few of those known.

The images are the embedded Fashion-MNIST ones, so nothing is downloaded. With your own model all of this is there already.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from potion.attacks import BadNet
from potion.data import ImageSet, draw_poison, known_share, load

__all__ = ["fit", "write_data"]

ATTACK = BadNet()  # a white square in the corner means class 0


def write_data(folder: Path, *, count: int = 2000, poisoned: int = 60, known: int = 12) -> ImageSet:
    """Write ``train/``, ``clean/``, ``triggered/`` and ``known.txt``; returns the training images as read from there."""
    train, test = load("fashion-mnist", limit=count), load("fashion-mnist", "test", limit=500)
    classes = [name.replace("/", " or ") for name in train.classes]
    images, labels = _pixels(train), train.labels.clone()
    poison = draw_poison(ATTACK, labels, poisoned, seed=0)
    images[poison] = _triggered(images[poison])
    labels[poison] = ATTACK.target
    names = _save(folder / "train", images, labels, classes)
    found = [names[index] for index in known_share(poison, known, seed=0)]
    (folder / "known.txt").write_text("\n".join(found) + "\n")
    _save(folder / "clean", _pixels(test), test.labels, classes)
    _save(folder / "triggered", _triggered(_pixels(test)), test.labels, classes)
    images_again = load(folder / "train")
    assert isinstance(images_again, ImageSet)
    return images_again


def fit(model: nn.Module, inputs: Tensor, labels: Tensor, *, lr: float = 0.003, epochs: int = 6) -> nn.Module:
    """Train a model the plain way."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr)
    model.train()
    for _ in range(epochs):
        for some in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[some]), labels[some]).backward()
            optimizer.step()
    return model.eval()


def _pixels(images: ImageSet) -> Tensor:
    """Floats in [0, 1] with three channels, as photographs have."""
    return (images.images / 255).repeat(1, 3, 1, 1)


def _triggered(images: Tensor) -> Tensor:
    return ATTACK(images, torch.arange(len(images)))


def _save(folder: Path, images: Tensor, labels: Tensor, classes: list[str]) -> list[str]:
    names = []
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        names.append(f"{classes[label]}/{number:04}.png")
        path = folder / names[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(path)
    return names
