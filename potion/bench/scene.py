"""One poisoned data set, and the models that are trained on it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from potion.attacks import Attack
from potion.baselines import Problem
from potion.bench.models_folder import ModelsFolder, Trained
from potion.bench.plan import Run, digest, essential
from potion.data import Images, PoisonedSet, View, draw_poison, known_share
from potion.fingerprint import digest_of
from potion.metrics import Scores, evaluate
from potion.models import build
from potion.runtime import forked_rng, seed_for, synchronize
from potion.search import PTN
from potion.training import Recipe, train

__all__ = ["Nobody", "Scene", "Tools", "Watch"]

PROBES = 256
"""So many images, evenly spaced, tell one data set from another."""


class Watch(Protocol):
    """Somebody who looks on: is told what goes on, and may ask a training to stop."""

    def phase(self, what: str, done: int = 0, total: int = 0) -> None: ...

    def stop(self) -> bool: ...


class Nobody:
    """A watch that does not care."""

    def phase(self, what: str, done: int = 0, total: int = 0) -> None:
        """Not listening."""

    def stop(self) -> bool:
        """Go on."""
        return False


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What a scene is worked on with: where models are kept, the device, loading processes, somebody who watches."""

    models: ModelsFolder
    device: torch.device
    workers: int = 0
    watch: Watch


@dataclass
class Scene:
    """One poisoned data set, and the models trained on it."""

    tools: Tools
    run: Run
    train_images: Images
    test_images: Images

    def __post_init__(self) -> None:
        run, images = self.run, self.train_images
        self.attack: Attack = run.attack.attack()
        self.poison = draw_poison(self.attack, images.labels, run.poisoned, seed_for("poison", run.seed))
        view = View(padding=run.data.padding, flip=run.data.flip)
        self.train_set = PoisonedSet(images, self.attack, self.poison, view=view, baked=run.data.baked)
        self.recipe = _recipe(run, len(images))
        self._models: dict[str, Trained] = {}

    def known(self, count: int) -> list[int]:
        """S_f; larger ones contain the smaller ones."""
        return known_share(self.poison, count, seed_for("known", self.run.seed)) if count else []

    @property
    def victim(self) -> Trained:
        """The poisoned model."""
        return self.trained([])

    @cached_property
    def victim_scores(self) -> Scores:
        """What the poisoned model is worth."""
        return self.scored(self.victim.model)

    @cached_property
    def reference_scores(self) -> Scores:
        """What a retrain without any poison is worth: "healed" is measured against it (FACTS 14)."""
        return self.scored(self.trained(self.poison).model)

    def scored(self, model: nn.Module) -> Scores:
        """The three accuracies on the test images."""
        batch_size, workers = self.run.data.batch_size, self.tools.workers
        return evaluate(model, self.test_images, self.attack, batch_size=batch_size, workers=workers)

    def key(self, left_out: list[int]) -> str:
        """A digest of what a model trained on S_tr without ``left_out`` depends on: content, not names."""
        run, trained_on = self.run, sorted(set(self.poison) - set(left_out))
        about = {
            "images": self._images,
            "model": [essential(run.model), _file_digest(run.model.settings)],
            "recipe": essential(self.recipe),
            "view": [run.data.padding, run.data.flip],
            "attack": [repr(self.attack), trained_on, run.data.baked] if trained_on else None,
            "left out": sorted(left_out),
            "seed": run.seed,
        }
        return digest(about)

    @cached_property
    def _images(self) -> str:
        """A digest of the training images: all labels, some pixels."""
        probes = torch.linspace(0, len(self.train_images) - 1, min(PROBES, len(self.train_images))).long()
        pixels, _ = self.train_images.raw(probes)
        return digest_of([("pixels", pixels), ("labels", self.train_images.labels)])

    def trained(self, left_out: list[int]) -> Trained:
        """A model trained by the recipe on S_tr without ``left_out``; victim and reference are kept on disk."""
        key = self.key(left_out)
        if key not in self._models:
            keep = len(left_out) in (0, len(self.poison))
            what = "victim" if not left_out else "reference" if keep else "retrain"
            training = partial(self._train, left_out=left_out, what=what)
            found = self.tools.models.obtain(key, self.new_model, training, keep=keep)
            if not keep:
                return found
            self._models[key] = Trained(found.model.to(self.tools.device), found.seconds)
        return self._models[key]

    def new_model(self) -> nn.Module:
        """A freshly initialised model, as the seed decides."""
        spec = self.run.model
        settings = dict(spec.settings)
        if "weights" in settings:
            settings["weights"] = _in_data_folder(settings["weights"])
        with forked_rng(seed_for("weights", self.run.seed)):
            return build(spec.name, len(self.train_images.classes), **settings)

    def problem(self, run: Run, victim: nn.Module, known: list[int]) -> Problem:
        """What the owner of the victim has: never the test set."""
        return Problem(
            model=victim,
            train_set=self.train_set,
            plain_set=self.train_set.plain(),
            known=known,
            recipe=self.recipe,
            new_model=self.new_model,
            batch_size=run.data.batch_size,
            device=self.tools.device,
            seed=seed_for("method", run.seed),
            workers=self.tools.workers,
            search=run.search or PTN(),
        )

    def _train(self, checkpoint: Path, *, left_out: list[int], what: str) -> Trained:
        watch, total = self.tools.watch, self.recipe.iterations
        left = set(left_out)
        resumed = total

        def between(done: int) -> bool:
            nonlocal resumed
            resumed = min(resumed, done - 1)
            watch.phase(f"training the {what}", done, total)
            return watch.stop()

        begin = time.perf_counter()
        model = train(
            self.new_model(),
            self.train_set,
            self.recipe,
            indices=[index for index in range(len(self.train_set)) if index not in left],
            seed=seed_for("order", self.run.seed),
            device=self.tools.device,
            progress=False,
            workers=self.tools.workers,
            checkpoint=checkpoint,
            between=between,
        )
        synchronize(self.tools.device)
        here = total - min(resumed, total - 1)  # a training that went on from a checkpoint counts in full
        return Trained(model, (time.perf_counter() - begin) * total / here)


def _recipe(run: Run, images: int) -> Recipe:
    if run.epochs is None:
        return run.recipe
    return replace(run.recipe, iterations=max(1, run.epochs * (images // run.recipe.batch_size)))


def _in_data_folder(weights: str) -> str:
    return str(Path(os.environ.get("POTION_DATA", "data")) / weights)


def _file_digest(settings: dict[str, Any]) -> str | None:
    if "weights" not in settings:
        return None
    path = Path(_in_data_folder(settings["weights"]))
    if not path.exists():
        raise FileNotFoundError(f"no weights at {path}: put them there, or name the data folder with POTION_DATA")
    return digest_of([("weights", torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8))])
