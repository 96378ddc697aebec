"""Everything that one heal needs, read from files and checked before anything expensive begins."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from potion.batches import fetch
from potion.checkpoint import Checkpoint, Names, fill, read_checkpoint
from potion.data import Encoded, View, locate
from potion.errors import told
from potion.forward import logits
from potion.metrics import predict
from potion.repair.known import known_from
from potion.repair.network import Network, find_network
from potion.repair.seen import Seen, aligned, images_of, test_images
from potion.repair.settings import Settings

__all__ = ["Case", "open_case"]

LOOKED_AT: Final = 512
"""Of so many samples, or fewer, is seen whether the model knows the data."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with its weights, the file they came from, the data and the known poison."""

    settings: Settings
    model: nn.Module
    checkpoint: Checkpoint
    names: Names
    own_weights: bool
    train: Seen
    known: list[int]
    files: list[str] | None
    clean: Seen | None
    triggered: Seen | None
    device: torch.device

    @property
    def known_names(self) -> list[str] | None:
        """The files of the known poison, where the data are files."""
        return None if self.files is None else [self.files[index] for index in self.known]

    def obeying(self) -> int:
        """How many of the known samples the model calls by their label in the data, which is the attacker's."""
        predicted, labels = predict(
            self.model,
            Subset(self.train.plain(), self.known),
            batch_size=self.settings.batch_size,
            workers=self.settings.workers,
        )
        return int((predicted == labels).sum())

    def fitting(self, model: nn.Module | None = None) -> float | None:
        """The share of some other samples that the model, or a repaired one, calls by their label in the data: these are
        hardly poison, and it was trained on them. ``None`` where there are none.
        """
        labels = self.train.labels
        others = torch.nonzero(~torch.isin(labels, labels[self.known])).flatten()[:: 1 + len(labels) // LOOKED_AT]
        if not len(others):
            return None
        predicted, truth = predict(
            model or self.model,
            Subset(self.train.plain(), others.tolist()),
            batch_size=self.settings.batch_size,
            workers=self.settings.workers,
        )
        return float((predicted == truth).double().mean())


def open_case(settings: Settings, device: torch.device) -> Case:
    """Read all inputs; what does not fit together is a ``ValueError`` or ``OSError`` that says so."""
    try:
        encoded = locate(settings.data)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"--data: {error}") from error
    known = known_from(settings.known, encoded)
    files = encoded.names()
    network = find_network(settings.model, settings.model_args, len(encoded.classes))
    encoded = _numbered(encoded, network, settings)
    checkpoint, names = _weights(settings, network)
    model = network.module
    model.eval()
    fill(model, checkpoint.tensors(names))
    model.to(device)
    if settings.mean is None:  # so that result.json says what was done
        settings = replace(settings, mean=network.mean, std=network.std)

    def seen(source: str, images: Encoded) -> Seen:
        view = View(padding=settings.padding, flip=settings.flip)
        return Seen(images_of(source, images, settings.size), view, settings.mean, settings.std)

    def to_score(option: str, source: str | None) -> Seen | None:
        try:
            return None if source is None else seen(source, test_images(source, encoded.classes)).plain()
        except (OSError, ValueError) as error:
            raise ValueError(f"{option}: {error}") from error

    case = Case(
        settings=settings,
        model=model,
        checkpoint=checkpoint,
        names=names,
        own_weights=settings.weights is not None or network.weights is not None,
        train=seen(settings.data, encoded),
        known=known,
        files=None if files is None else [_short(file, settings.data) for file in files],
        clean=to_score("--clean", settings.clean),
        triggered=to_score("--triggered", settings.triggered),
        device=device,
    )
    side = min(case.train.images.raw(torch.tensor([0]))[0].shape[-2:])
    if settings.padding >= side:
        raise ValueError(
            f"--padding {settings.padding}: the images have {side} pixels; give what training padded them by"
        )
    _check_head(case)
    for option, images in (("--clean", case.clean), ("--triggered", case.triggered)):
        if images is not None:
            _look(case, option, images, 0)
    return case


def _numbered(encoded: Encoded, network: Network, settings: Settings) -> Encoded:
    """The data with its classes numbered as the model does, where both have names for them: folders are only sorted."""
    if network.classes is None:
        return encoded
    if all(name.isdecimal() for name in encoded.classes) and not set(encoded.classes) <= set(network.classes):
        return encoded  # numbers for want of names
    some = ", ".join(network.classes[:3])
    there = (
        f"--model {settings.model}, which names its classes {some}, ... (id2label in config.json); make the names agree"
    )
    return aligned(encoded, network.classes, f"--data {settings.data}", there)


def _weights(settings: Settings, network: Network) -> tuple[Checkpoint, Names]:
    path = settings.weights or network.weights
    if settings.weights is not None and not Path(settings.weights).is_file():
        there = "a folder; name the file in it" if Path(settings.weights).is_dir() else "there is no such file"
        raise FileNotFoundError(f"--weights {settings.weights}: {there}")
    if path is None and not network.trained:
        for index in Path(settings.model).glob("*.index.json"):
            raise ValueError(
                f"--model {settings.model} has its weights in several files ({index.name}); bring them into one: "
                "model.save_pretrained(folder, max_shard_size='100GB')"
            )
        raise ValueError(f"--weights is missing: {settings.model} alone is a model that has learned nothing")
    checkpoint = Checkpoint.of(network.module, Path("original")) if path is None else read_checkpoint(path)
    return checkpoint, checkpoint.fit(network.module)


def _check_head(case: Case) -> None:
    """Whether the model has one logit for each class of the data: otherwise classes and logits are not the same ones."""
    classes, outputs = len(case.train.classes), _look(case, "--data", case.train, case.known[0]).shape[1]
    if outputs == classes:
        return
    if outputs < classes:
        advice = "it was trained on other classes, or needs a --model-arg that says how many"
    else:
        advice = (
            "classes are numbered in their order, so all must be there; an empty folder keeps the place of one without "
            "images, and parquet can name all its classes"
        )
    raise ValueError(f"--data {case.settings.data} has {classes} classes, but the model has {outputs} logits: {advice}")


@torch.no_grad()
def _look(case: Case, option: str, images: Seen, index: int) -> Tensor:
    """What the model says about one image, if it takes it at all."""
    try:
        inputs, _ = fetch(images.plain(), [index], case.device)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
    try:
        return logits(case.model, inputs)
    except (Exception, SystemExit) as error:  # somebody else's model may raise anything, and end a script
        shape = "x".join(str(side) for side in inputs.shape[1:])
        raise ValueError(
            f"--model {case.settings.model} fails on an image of {option} ({shape}): {told(error)}{_advice(error, inputs)}"
        ) from error


def _advice(error: BaseException, inputs: Tensor) -> str:
    """What may help; nothing where it is not the image that is wrong."""
    if "channels" in str(error):
        return (
            f"; the images have {inputs.shape[1]}: store grey ones as RGB for a model that wants colours, and the other way "
            "round"
        )
    if isinstance(error, TypeError) or str(error).startswith("model "):
        return ""
    return "; --size brings images to another size"


def _short(name: str, data: str) -> str:
    """A file's name below the data folder, which says nothing about the machine."""
    inside = os.path.relpath(name, data)
    return name if inside.startswith("..") else Path(inside).as_posix()
