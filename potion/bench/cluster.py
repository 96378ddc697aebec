"""The Ray engine: the same plan on many machines. Trainings and runs are tasks; results stream back to the driver's folder.

Ray does a task again elsewhere when its worker or machine is lost. Trained models travel through Ray's object store and
are kept in the driver's folder, under the names that the local engine uses, so both engines can share them.
"""

from __future__ import annotations

import atexit
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any, Final

from potion.bench.models_folder import Busy, ModelsFolder, claimed, work_folder
from potion.bench.plan import Run
from potion.bench.results import Results
from potion.bench.runner import Deadline, Report, Tally
from potion.bench.workshop import Workshop

__all__ = ["run_on_ray"]

AHEAD: Final = 4
"""So many tasks are submitted for each one that can run at a time."""


def run_on_ray(
    runs: Sequence[Run],
    results: Results,
    report: Report,
    deadline: Deadline,
    *,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    workers: int = 0,
) -> Tally:
    """Perform what is missing on a Ray cluster, or on one that is started here where no ``address`` is given."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address=address, include_dashboard=None if address else False, log_to_driver=False, logging_level=logging.ERROR
    )
    try:
        return _Driver(ray, results, report, deadline, cpus, gpus, workers).run(runs)
    finally:
        ray.shutdown()


class _Driver:
    """Keeps the cluster busy, and writes what comes back."""

    def __init__(
        self, ray: Any, results: Results, report: Report, deadline: Deadline, cpus: float, gpus: float, workers: int
    ) -> None:
        self._ray, self._results, self._report, self._deadline = ray, results, report, deadline
        work = work_folder(results.folder)
        self._models, self._locks = ModelsFolder(work / "models"), work / "locks"
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": -1}
        settings = {"device": "cuda" if gpus else "cpu", "workers": workers, "session": str(time.time_ns())}
        self._names = ray.remote(_names).options(**options).remote
        self._train = ray.remote(_train).options(**options).remote
        self._perform = ray.remote(_perform).options(**options).remote
        self._settings = settings
        resources = ray.cluster_resources()
        slots = resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1) / cpus
        if slots < 1:
            raise ValueError(f"the cluster has no room for one run: it wants {cpus:g} CPUs and {gpus:g} GPUs")
        self._ahead = max(1, int(slots)) * AHEAD
        self._trained: dict[str, Any] = {}

    def run(self, runs: Sequence[Run]) -> Tally:
        tally = Tally()
        waiting = [run for run in runs if not self._results.has(run)]
        victims = {run.victim: run for run in waiting}
        named = self._ray.get([self._names(run, self._settings) for run in victims.values()])
        names = dict(zip(victims, named, strict=True))
        held: dict[Any, tuple[Run, ExitStack]] = {}
        training: dict[Any, str] = {}
        while (waiting or held) and self._deadline.left() > 0:
            busy = []
            while waiting and len(held) < self._ahead:
                run = waiting.pop(0)
                claim = ExitStack()
                try:
                    claim.enter_context(claimed(self._locks / f"{run.suite}-{run.key}.lock"))
                except Busy:
                    busy.append(run)
                    continue
                if self._results.look(run):
                    claim.close()
                    continue
                models = {key: self._model(run, which, key, training) for which, key in names[run.victim].items()}
                self._report.started(run)
                task = self._perform(run, self._settings, list(models), *models.values())
                held[task] = run, claim
            waiting += busy
            self._report.phase(f"{len(held)} runs submitted, {len(training)} trainings under way")
            if not held:
                time.sleep(1)  # all that is left is in the hands of other runners
                continue
            for task in self._ray.wait([*held, *training], timeout=1)[0]:
                if task in training:
                    self._keep(training.pop(task), task)
                else:
                    self._collect(task, *held.pop(task), tally)
        for task, (_, claim) in held.items():
            self._ray.cancel(task, force=True)
            claim.close()
        tally.left = sum(not self._results.look(run) for run in runs) - tally.failed
        tally.out_of_time = bool(waiting or held)
        return tally

    def _model(self, run: Run, which: str, key: str, training: dict[Any, str]) -> Any:
        """A reference to the model's file: put there from the driver's folder, or to be trained by a task."""
        if key not in self._trained:
            path = self._models.path(key)
            if path.exists():
                self._trained[key] = self._ray.put(path.read_bytes())
            else:
                self._trained[key] = self._train(run, self._settings, which)
                training[self._trained[key]] = key
        return self._trained[key]

    def _keep(self, key: str, task: Any) -> None:
        try:
            content = self._ray.get(task)
        except self._ray.exceptions.RayError:  # the runs that need the model report it
            return
        self._models.put(key, content)

    def _collect(self, task: Any, run: Run, claim: ExitStack, tally: Tally) -> None:
        with claim:
            try:
                record = self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                tally.failed += 1
                self._report.failed(run, cause if isinstance(cause, Exception) else error)
                return
            self._results.write(run, record)
        tally.done += 1
        self._report.finished(run, record)


def _names(run: Run, settings: dict[str, Any]) -> dict[str, str]:
    return _workshop(**settings).names(run)


def _train(run: Run, settings: dict[str, Any], which: str) -> bytes:
    workshop = _workshop(**settings)
    scene = workshop.scene(run)
    left_out = [] if which == "victim" else scene.poison
    scene.trained(left_out)
    return workshop.models.taken(scene.key(left_out))


def _perform(run: Run, settings: dict[str, Any], keys: list[str], *contents: bytes) -> dict[str, Any]:
    workshop = _workshop(**settings)
    for key, content in zip(keys, contents, strict=True):
        workshop.models.put(key, content)
    try:
        return workshop.perform(run)
    finally:
        for key in keys:
            workshop.models.taken(key)


@cache
def _workshop(*, device: str, workers: int, session: str) -> Workshop:
    """The workshop of a process, so that the data stay loaded from task to task; its folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix=f"potion-{session}-")
    workshop = Workshop(folder.name, device=device, workers=workers)
    atexit.register(folder.cleanup)
    return workshop
