"""The Ray engine: the same plan on many machines. Results stream back to the driver's folder.

One actor for each slot of the cluster keeps its data loaded and its GPU for life. Ray starts a lost actor again, elsewhere
if its machine is gone, and gives it the same task. Trained models travel through Ray's object store and are kept in the
driver's folder, under the names that the local engine uses, so both engines can share them. A training that the end of the
budget interrupts is lost; the local engine keeps its checkpoint.
"""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from potion.bench.models_folder import Busy, ModelsFolder, claimed, work_folder
from potion.bench.plan import Run
from potion.bench.results import Results
from potion.bench.runner import Deadline, Report, Tally
from potion.bench.workshop import Workshop

__all__ = ["run_on_ray"]

RETRIES: Final = 3
"""A run that kills its worker so often is a broken run."""


def run_on_ray(
    runs: Sequence[Run],
    results: Results,
    report: Report,
    deadline: Deadline,
    *,
    address: str | None = None,
    cpus: float = 1,
    gpus: float | None = None,
    workers: int = 0,
) -> Tally:
    """Perform what is missing on a Ray cluster, or on one that is started here where no ``address`` is given."""
    ray: Any = importlib.import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        resources = ray.cluster_resources()
        share = (1.0 if resources.get("GPU") else 0.0) if gpus is None else gpus
        slots = resources.get("GPU", 0) / share if share else resources.get("CPU", 1) / cpus
        if slots < 1:
            raise ValueError(f"the cluster has no room for one run, which wants {cpus:g} CPUs and {share:g} GPUs")
        remote = ray.remote(num_cpus=cpus, num_gpus=share, max_restarts=-1, max_task_retries=RETRIES)(_Worker)
        waiting = [run for run in runs if not results.has(run)]
        actors = [remote.remote("cuda" if share else "cpu", workers) for _ in range(min(int(slots), len(waiting)))]
        tally = _Driver(ray, actors, results, report, deadline).run(waiting)
        with suppress(ray.exceptions.RayError):  # a worker that cannot clean up after itself
            ray.get([actor.close.remote() for actor in actors], timeout=0 if tally.out_of_time else 10)
    finally:
        ray.shutdown()
    tally.left = sum(not results.look(run) for run in runs) - tally.failed
    return tally


class _Worker:
    """An actor: a workshop in a folder of its own, with methods that take and return what travels."""

    def __init__(self, device: str, workers: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="potion-ray-")
        self._workshop = Workshop(self._folder.name, device=device, workers=workers)

    def names(self, run: Run) -> dict[str, str]:
        return self._workshop.names(run)

    def train(self, run: Run, which: str) -> bytes:
        scene = self._workshop.scene(run)
        left_out = [] if which == "victim" else scene.poison
        scene.trained(left_out)
        return self._workshop.models.taken(scene.key(left_out))

    def perform(self, run: Run, keys: list[str], *contents: bytes) -> dict[str, Any]:
        for key, content in zip(keys, contents, strict=True):
            self._workshop.models.put(key, content)
        try:
            return self._workshop.perform(run)
        finally:
            self._workshop.tidy()
            for key in keys:
                self._workshop.models.remove(key)

    def close(self) -> None:
        self._folder.cleanup()


class _Driver:
    """Gives every idle actor the first task that can be done: name the models of a victim, train one, perform a run."""

    def __init__(self, ray: Any, actors: list[Any], results: Results, report: Report, deadline: Deadline) -> None:
        self._ray, self._idle = ray, list(actors)
        self._results, self._report, self._deadline = results, report, deadline
        work = work_folder(results.folder)
        self._models, self._locks = ModelsFolder(work / "models"), work / "locks"
        self._busy: dict[Any, tuple[Any, str, Any, ExitStack]] = {}
        self._names: dict[str, dict[str, str]] = {}
        self._stored: dict[str, Any] = {}
        self._under_way: set[str] = set()
        self._broken: dict[str, Exception] = {}
        self._tally = Tally()

    def run(self, waiting: list[Run]) -> Tally:
        while (waiting or self._busy) and self._deadline.left() > 0:
            waiting = [run for run in waiting if not self._dealt_with(run)]
            self._report.phase(f"{len(self._busy)} workers busy, {len(waiting)} runs waiting")
            if self._busy:
                for task in self._ray.wait(list(self._busy), timeout=1)[0]:
                    self._collect(task)
            elif waiting:
                time.sleep(1)  # all that is left is in the hands of other runners
        self._tally.out_of_time = bool(waiting or self._busy)
        for *_, claim in self._busy.values():
            claim.close()
        return self._tally

    def _dealt_with(self, run: Run) -> bool:
        """Whether the run need not be looked at again: given to an actor, done by others, or not to be done."""
        if error := self._broken.get(run.victim):
            self._tally.failed += 1
            self._report.failed(run, error)
            return True
        if self._results.look(run):
            return True
        keys = self._models_for(run)
        if keys is None or not self._idle:
            return False
        lock = self._locks / f"{run.suite}-{run.key}.lock"
        given = self._give("perform", run, lock, run, keys, *(self._stored[key] for key in keys))
        if given:
            self._report.started(run)
        return given

    def _models_for(self, run: Run) -> list[str] | None:
        """The keys of the run's victim and reference, when both are there; what is not is set going."""
        if run.victim not in self._names and self._idle:
            self._names[run.victim] = {}
            self._give("names", run, None, run)
        names = self._names.get(run.victim, {})
        for which, key in names.items():
            if not self._has(key) and key not in self._under_way and self._idle:
                self._give("train", (run, key), self._models.folder / f"{key}.lock", run, which)
        return list(names.values()) if names and all(map(self._has, names.values())) else None

    def _give(self, kind: str, what: Any, lock: Path | None, *arguments: Any) -> bool:
        """Give a task to an idle actor, unless another runner holds its lock."""
        claim = ExitStack()
        try:
            if lock is not None:
                claim.enter_context(claimed(lock))
        except Busy:
            return False
        actor = self._idle.pop()
        if kind == "train":
            self._under_way.add(what[1])
        self._busy[getattr(actor, kind).remote(*arguments)] = actor, kind, what, claim
        return True

    def _has(self, key: str) -> bool:
        """Whether the model is in the driver's folder; if so, it is put where the actors can take it from."""
        if key not in self._stored and self._models.path(key).exists():
            self._stored[key] = self._ray.put(self._models.path(key).read_bytes())
        return key in self._stored

    def _collect(self, task: Any) -> None:
        actor, kind, what, claim = self._busy.pop(task)
        self._idle.append(actor)
        with claim:
            try:
                outcome = self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                self._failed(kind, what, cause if isinstance(cause, Exception) else error)
                return
            if kind == "names":
                self._names[what.victim] = outcome
            elif kind == "train":
                self._models.put(what[1], outcome)
                self._under_way.discard(what[1])
            else:
                self._results.write(what, outcome)
        if kind == "perform":
            self._tally.done += 1
            self._report.finished(what, outcome)

    def _failed(self, kind: str, what: Any, error: Exception) -> None:
        """A run that fails is one run; a victim that cannot be had takes all its runs with it."""
        if kind == "perform":
            self._tally.failed += 1
            self._report.failed(what, error)
        else:
            self._broken[(what if kind == "names" else what[0]).victim] = error
