"""Where a run is performed: data, victim, reference, method, scores -> one record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import nn

from potion.baselines import METHODS, Repair
from potion.bench.models_folder import ModelsFolder
from potion.bench.plan import Run, digest
from potion.bench.provenance import provenance
from potion.bench.scene import Nobody, Scene, Tools, Watch
from potion.bench.sweep import swept
from potion.data import Images, ImageSet, load
from potion.metrics import Scores, damage, healed
from potion.result import HealResult
from potion.runtime import best_device, synchronize

__all__ = ["Workshop"]


class Workshop:
    """Performs runs one after the other; data, victim and reference of the last one are at hand for the next."""

    def __init__(
        self,
        models: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        workers: int = 0,
        watch: Watch | None = None,
        recorded: Callable[[Run], dict[str, Any] | None] = lambda run: None,
    ) -> None:
        self.device = best_device() if device is None else torch.device(device)
        self.watch: Watch = watch or Nobody()
        self.models = ModelsFolder(models)
        self._tools = Tools(
            models=self.models, device=self.device, workers=workers, watch=self.watch, recorded=recorded
        )
        self._data: tuple[str, Images, Images] | None = None
        self._scene: Scene | None = None

    def perform(self, run: Run) -> dict[str, Any]:
        """Run it, and return what belongs into its result file."""
        scene = self.scene(run)
        known = scene.known(run.known)
        victim, before, after_retrain = scene.victim, scene.victim_scores, scene.reference_scores
        self.watch.phase(run.method)
        repair, seconds = self._repaired(run, scene, victim.model, known)
        self.watch.phase("scoring")
        scores = before if run.method == "none" else scene.scored(repair.model)
        record: dict[str, Any] = {
            "suite": run.suite,
            "key": run.key,
            "scenario": {
                "dataset": run.data.source,
                "model": run.model.name,
                "attack": run.attack.label,
                "poisoned": run.poisoned,
                "known": run.known,
                "seed": run.seed,
            },
            "method": run.method,
            "known": run.known,
            "status": None if repair.status is None else repair.status.value,
            **_graded(scores, before, after_retrain),
            "steps": None if repair.result is None else len(repair.result.trace),
            "seconds": seconds,
            "victim": asdict(before),
            "reference": asdict(after_retrain),
            **_story(repair.result, seconds),
            "notes": repair.notes,
        }
        if "discovered" in repair.notes:
            record["discovery"] = _found(repair.notes["discovered"], set(scene.poison) - set(known))
        if run.sweep is not None and repair.result is not None:
            self.watch.phase("sweep")
            grade = partial(_graded, before=before, reference=after_retrain)
            record |= swept(run.sweep, scene.problem(run, victim.model, known), repair.result, scene.scored, grade)
        return record | {
            "run": run.to_dict(),
            "provenance": provenance(run, self.device) | {"data": scene.data_digests},
        }

    def tidy(self) -> None:
        """The results of the runs so far are written: models that only they needed may go."""
        if self._scene is not None:
            while self._scene.spare:
                self.models.remove(self._scene.spare.pop())

    def names(self, run: Run) -> dict[str, str]:
        """The keys of the trained models that the run needs: its victim and its reference."""
        scene = self.scene(run)
        return {"victim": scene.key([]), "reference": scene.key(scene.poison)}

    def scene(self, run: Run) -> Scene:
        """The contaminated data of a run; models are trained when they are asked for."""
        if self._scene is None or self._scene.run.victim != run.victim:
            self._scene = None  # its models go before others are made
            train_images, test_images = self.loaded(run)
            self._scene = Scene(self._tools, run, train_images, test_images)
        return self._scene

    def loaded(self, run: Run) -> tuple[Images, Images]:
        """The training and test images of a run."""
        key = digest(asdict(run.data))
        if self._data is None or self._data[0] != key:
            self._data = None
            self.watch.phase(f"reading {run.data.source}")
            train_images = self._split(run, "train", run.data.limit)
            self._data = key, train_images, self._split(run, "test", run.data.test_limit)
        return self._data[1:]

    def _split(self, run: Run, split: str, limit: int | None) -> Images:
        spec = run.data
        images = load(spec.source, split, size=spec.size, streamed=spec.streamed, limit=limit)
        if not isinstance(images, ImageSet):
            if spec.pad is not None:
                raise ValueError("data.pad is for sets in memory, not for streamed ones")
            return images
        if spec.pad is not None:
            images = images.padded(spec.pad)
        return images.to(self.device) if _fits(images, self.device) else images

    def _repaired(self, run: Run, scene: Scene, victim: nn.Module, known: list[int]) -> tuple[Repair, float]:
        if run.method == "retrain":  # a training like any other: content-keyed, resumable
            trained = scene.trained(known)
            return Repair(model=trained.model), trained.seconds
        problem = scene.problem(run, victim, known)
        begin = time.perf_counter()
        repair = METHODS[run.method](problem)
        synchronize(self.device)
        return repair, time.perf_counter() - begin


def _story(result: HealResult | None, seconds: float) -> dict[str, Any]:
    """How a search went, for the methods that search."""
    if result is None:
        return {"trace": [], "chosen": None, "timings": {"method": seconds}}
    told = result.to_dict()
    return {key: told[key] for key in ("trace", "chosen", "known_accuracy", "timings")}


def _graded(scores: Scores, before: Scores, reference: Scores) -> dict[str, float]:
    return {**asdict(scores), "healed": healed(scores, reference), "damage": damage(scores, before)}


def _found(named: list[int], hidden: set[int]) -> dict[str, Any]:
    """How many of the samples that a method takes to be poison are, and how much of the hidden poison that is."""
    right = len(hidden.intersection(named))
    return {
        "named": len(named),
        "precision": right / len(named) if named else None,
        "recall": right / len(hidden) if hidden else None,
    }


def _fits(images: ImageSet, device: torch.device) -> bool:
    """Whether the pixels can live on the device and leave most of it free."""
    return device.type != "cuda" or images.images.nbytes < torch.cuda.mem_get_info(device)[0] / 4
