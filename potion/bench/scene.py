"""One poisoned data set, and the models that are trained on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from potion.attacks import Attack
from potion.baselines import Problem
from potion.bench.models_folder import ModelsFolder, Trained
from potion.bench.plan import Run, digest, essential
from potion.data import DiskImages, Images, PoisonedSet, View, draw_poison, known_share
from potion.fingerprint import digest_of
from potion.metrics import Scores, evaluate
from potion.models import build
from potion.runtime import forked_rng, seed_for, synchronize
from potion.search import PTN
from potion.training import ForeignCheckpoint, Recipe, train

__all__ = ["Nobody", "Scene", "Tools", "Watch"]

PROBES = 256
"""So many images, evenly spaced, tell one data set from another."""


class Watch(Protocol):
    """Somebody who looks on: is told what goes on, and may ask a training to stop, which takes ``notice`` seconds."""

    def phase(self, what: str, done: int = 0, total: int = 0) -> None: ...

    def stop(self, notice: float) -> bool: ...


class Nobody:
    """A watch that does not care."""

    def phase(self, what: str, done: int = 0, total: int = 0) -> None:
        """Not listening."""

    def stop(self, notice: float) -> bool:
        """Go on."""
        return False


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What a scene is worked on with: where models are kept, the device, loading processes, somebody who watches.

    ``recorded`` gives the record of a run where there is one.
    """

    models: ModelsFolder
    device: torch.device
    workers: int = 0
    watch: Watch
    recorded: Callable[[Run], dict[str, Any] | None] = lambda run: None


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
        self.workers = self.tools.workers if isinstance(images, DiskImages) else 0
        self.spare: list[str] = []
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
        """What a retrain without any poison is worth: "healed" is measured against it (FACTS 14).

        Trainings repeat to the bit: where the victim scores exactly as its record says, so would the reference, and the
        record's scores spare its training.
        """
        record = self.tools.recorded(self.run.untreated)
        if record is not None and record["victim"] == asdict(self.victim_scores):
            return Scores(**record["reference"])
        return self.scored(self.trained(self.poison).model)

    def scored(self, model: nn.Module) -> Scores:
        """The three accuracies on the test images."""
        batch_size = self.run.data.batch_size
        return evaluate(model, self.test_images, self.attack, batch_size=batch_size, workers=self.workers)

    def key(self, left_out: list[int]) -> str:
        """A digest of what a model trained on S_tr without ``left_out`` depends on: content, not names."""
        run, trained_on = self.run, sorted(set(self.poison) - set(left_out))
        about = {
            "images": self.data_digests["train"],
            "model": [essential(run.model), _file_digest(run.model.settings)],
            "recipe": essential(self.recipe),
            "view": [run.data.padding, run.data.flip],
            "attack": [repr(self.attack), trained_on, run.data.baked] if trained_on else None,
            "left out": sorted(left_out),
            "seed": run.seed,
        }
        return digest(about)

    @cached_property
    def data_digests(self) -> dict[str, str]:
        """What tells the images of one data set from those of another."""
        return {"train": _digest(self.train_images), "test": _digest(self.test_images)}

    def trained(self, left_out: list[int]) -> Trained:
        """A model trained by the recipe on S_tr without ``left_out``. Victim and reference stay on disk; the keys of others,
        which no second run needs, are noted as ``spare``.
        """
        key = self.key(left_out)
        if key not in self._models:
            keep = len(left_out) in (0, len(self.poison))
            what = "victim" if not left_out else "reference" if keep else "retrain"
            training = partial(self._train, left_out=left_out, what=what)
            found = self.tools.models.obtain(key, self.new_model, training)
            placed = Trained(found.model.to(self.tools.device), found.seconds)
            if not keep:
                self.spare.append(key)
                return placed
            self._models[key] = placed
        return self._models[key]

    def new_model(self, purpose: str = "weights") -> nn.Module:
        """A freshly initialised model, as the seed decides, for each purpose another one."""
        spec = self.run.model
        settings = dict(spec.settings)
        if "weights" in settings:
            settings["weights"] = _in_data_folder(settings["weights"])
        with forked_rng(seed_for(purpose, self.run.seed)):
            return build(spec.name, len(self.train_images.classes), **settings)

    def problem(self, run: Run, victim: nn.Module, known: list[int]) -> Problem:
        """What the owner of the victim has: never the test set."""
        return Problem(
            model=victim,
            train_set=self.train_set,
            plain_set=self.train_set.plain(),
            known=known,
            recipe=self.recipe,
            new_model=partial(self.new_model, "a fresh model"),
            batch_size=run.data.batch_size,
            device=self.tools.device,
            seed=seed_for("method", run.seed),
            workers=self.workers,
            search=run.search or PTN(),
        )

    def _train(self, checkpoint: Path, *, left_out: list[int], what: str) -> Trained:
        left = set(left_out)
        model = self.new_model()
        pace = _Pace(self.tools.watch, f"training the {what}", self.recipe.iterations, model)
        training = partial(
            train,
            dataset=self.train_set,
            recipe=self.recipe,
            indices=[index for index in range(len(self.train_set)) if index not in left],
            seed=seed_for("order", self.run.seed),
            device=self.tools.device,
            progress=False,
            workers=self.workers,
            checkpoint=checkpoint,
            keep_checkpoint=True,
            between=pace,
        )
        try:
            training(model)
        except ForeignCheckpoint:  # the name is that of this very training: begun on another device, or damaged
            checkpoint.unlink()
            training(model := self.new_model())
        synchronize(self.tools.device)
        return Trained(model, pace.seconds())


class _Pace:
    """What goes on between the iterations of a training: the watch is told, asked, and given notice."""

    def __init__(self, watch: Watch, what: str, total: int, model: nn.Module) -> None:
        self._watch, self._what, self._total = watch, what, total
        self._times: list[float] = [time.perf_counter()]
        self._longest = 0.0
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        self._save = 1 + 3 * size / 50e6  # weights and two of the optimizer's, at what a slow disk takes

    def __call__(self, done: int) -> bool:
        self._times.append(time.perf_counter())
        self._longest = max(self._longest, self._times[-1] - self._times[-2])
        self._watch.phase(self._what, done, self._total)
        return self._watch.stop(2 * self._longest + self._save)

    def seconds(self) -> float:
        """Of the whole training: the pace of the iterations seen here, so that a resumed one counts in full."""
        first = min(1, len(self._times) - 2)  # the first one also builds and warms up
        if first < 0:
            return 0.0
        return self._total * (time.perf_counter() - self._times[first]) / max(1, len(self._times) - 1 - first)


def _digest(images: Images) -> str:
    """A digest of all labels and some pixels."""
    probes = torch.linspace(0, len(images) - 1, min(PROBES, len(images))).long()
    pixels, _ = images.raw(probes)
    return digest_of([("pixels", pixels), ("labels", images.labels)])


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
