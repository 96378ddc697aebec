"""What the speed of healing is measured on: a victim that obeys, its data on the device, and some known poison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import nn
from torch.nn.functional import interpolate

from potion.attacks import BadNet
from potion.data import ImageSet, PoisonedSet, View, draw_poison, known_share, load
from potion.embedded import Embedded, embedded_model
from potion.models import build, resnet9
from potion.runtime import forked_rng, generator_for
from potion.search import PTN
from potion.training import Recipe, train

__all__ = ["WORKLOADS", "Workload", "workload"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A victim and what its owner has, ready to be healed; ``wider`` makes untrained models like it of any width."""

    name: str
    model: nn.Module
    train_set: PoisonedSet
    poison: list[int]
    batch_size: int
    wider: Callable[[int], nn.Module] | None = None
    widths: tuple[int, ...] = ()
    search: PTN = field(default_factory=PTN)

    def known(self, count: int) -> list[int]:
        """Some of the poison."""
        return known_share(self.poison, min(count, len(self.poison)), seed=0)


SHORT: Final = PTN(max_steps=30)
SGD: Final = Recipe(iterations=150, batch_size=256, lr=0.02, precision="bfloat16", channels_last=True)


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A victim of made-up images that a network learns in seconds: importances do not care what they show.

    A search would: such a victim is not healed by dampening. It takes as many steps as is usual on CIFAR-10.
    """

    model: str
    images: int = 50_000
    size: int = 32
    batch_size: int = 512
    classes: int = 10
    patch: int = 3
    poisoned: int = 1000
    widths: tuple[int, ...] = ()
    recipe: Recipe = SGD
    search: PTN = SHORT


ADAM: Final = Recipe(iterations=60, batch_size=128, optimizer="adamw", lr=2.5e-4, precision="bfloat16")


def workload(name: str, device: torch.device, images: int | None = None) -> Workload:
    """Make a workload, perhaps with another number of images than its own."""
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; known are {', '.join(WORKLOADS)}")
    made = WORKLOADS[name]
    if not isinstance(made, _Made):
        return made(device, images)
    labels, pixels = _made_up(images or made.images, made.size, made.classes)
    base = ImageSet(pixels.to(device), labels.to(device), tuple(map(str, range(made.classes))))
    attack = BadNet(size=made.patch)
    poison = draw_poison(attack, labels, min(made.poisoned, len(labels) // 2), seed=0)
    data = PoisonedSet(base, attack, poison, view=View(padding=4 if made.size == 32 else 0, flip=True))
    with forked_rng(0):
        model = build(made.model, made.classes)
    train(model, data, made.recipe, seed=1, device=device, progress=False)
    return Workload(
        name=name,
        model=model,
        train_set=data,
        poison=poison,
        batch_size=made.batch_size,
        wider=lambda width: build(made.model, made.classes, width=width).to(device),
        widths=made.widths,
        search=made.search,
    )


def _cifar10(device: torch.device, images: int | None) -> Workload:
    """The real thing: the victim of the benchmark with 1,000 poisoned samples."""
    base = load("cifar10", limit=images)
    assert isinstance(base, ImageSet)
    base = base.to(device)
    attack = BadNet()
    poison = draw_poison(attack, base.labels.cpu(), min(1000, len(base) // 2), seed=0)
    data = PoisonedSet(base, attack, poison, view=View(padding=4, flip=True))
    with forked_rng(0):
        model = resnet9()
    train(model, data, Recipe(precision="bfloat16", channels_last=True), seed=1, device=device, progress=False)
    return Workload(
        name="cifar10",
        model=model,
        train_set=data,
        poison=poison,
        batch_size=512,
        wider=lambda width: resnet9(width=width).to(device),
        widths=(32, 64, 128),
    )


def _embedded(device: torch.device, images: int | None) -> Workload:
    scenario = Embedded()
    base = ImageSet(scenario.train.images[:images], scenario.train.labels[:images], scenario.train.classes).to(device)
    poison = [index for index in scenario.poison() if index < len(base)]
    return Workload(
        name="embedded",
        model=embedded_model("victim").to(device),
        train_set=PoisonedSet(base, scenario.attack, poison, view=View(padding=4, flip=True)),
        poison=poison,
        batch_size=scenario.recipe.batch_size,
        wider=lambda width: resnet9(channels=1, width=width, mean=(0.2192,), std=(0.3327,)).to(device),
        widths=(8, 16, 32),
    )


def _made_up(count: int, size: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels, and noisy copies of one coarse picture for each class."""
    generator = generator_for("made-up images", 0)
    coarse = torch.rand(classes, 3, 8, 8, generator=generator)
    pictures = (interpolate(coarse, (size, size), mode="bilinear") * 160).byte()
    labels = torch.randint(classes, (count,), generator=generator)
    pixels = pictures[labels]
    for piece in pixels.split(4096):  # noise in pieces: the whole would not fit beside itself
        piece.add_(torch.randint(0, 90, piece.shape, generator=generator, dtype=torch.uint8))
    return labels, pixels


TINY, BASE = "timm:deit_tiny_patch16_224", "timm:vit_base_patch16_224"
WORKLOADS: Final[dict[str, _Made | Callable[[torch.device, int | None], Workload]]] = {
    "embedded": _embedded,
    "cifar10": _cifar10,
    "resnet9": _Made(model="resnet9", widths=(16, 32, 64, 128)),
    "wrn28x10": _Made(model="wide_resnet28x10", classes=100),
    "vit-tiny": _Made(model=TINY, images=9469, size=224, patch=12, recipe=ADAM),
    "vit-base": _Made(model=BASE, images=2048, size=224, batch_size=128, patch=12, poisoned=200, recipe=ADAM),
}
