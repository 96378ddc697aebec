"""What other settings of the search would have given, without computing importances or searching again for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import TensorDataset

from potion.baselines import Problem
from potion.batches import DatasetBatches, fetch
from potion.bench.suite import Sweep
from potion.metrics import Scores, accuracy
from potion.neutralise import seen
from potion.recorded import recorded
from potion.result import HealResult
from potion.search import steps_of, walked
from potion.tradeoff import AnyRepair, around, tradeoff
from potion.types import Look, Status, Step
from potion.working import working_copy

__all__ = ["stopped_at", "swept"]

MAX_STEPS: Final = 20_000
"""Fine steps need many; a search ends by itself where nothing changes any more."""


def swept(
    sweep: Sweep,
    problem: Problem,
    result: HealResult,
    score: Callable[[nn.Module], Scores],
    grade: Callable[[Scores], dict[str, float]],
) -> dict[str, Any]:
    """``points``, one for each rho and step of the sweep, and a ``curve`` over s, which is empty where nothing was searched.

    One search for each step size, at the smallest rho, holds the answers for all larger ones: a search at a larger rho
    walks the same grid and stops earlier. Bisection goes to places of that grid, too, and no place is looked at twice.
    """
    model = problem.copied()
    scored: dict[float | None, dict[str, float]] = {None: grade(score(model))}
    rhos, sizes = sweep.rho or (result.search.rho,), sweep.step or (result.search.step,)
    if not result.retain:
        as_it_is = {"status": result.status.value, "steps": 0, "search_seconds": 0.0, "chosen": None, **scored[None]}
        return {"points": [{"rho": rho, "step": step, **as_it_is} for step in sizes for rho in rhos], "curve": []}
    known, repair = _known(problem), AnyRepair(model, result)
    step_at = cache(_steps(problem, result, known))
    walk = partial(walked, before=Look(result.known_accuracy), share=len(problem.known) / problem.size)
    points = []
    for step in sizes:
        begin = time.perf_counter()
        settings = replace(result.search, rho=min(rhos), step=step, max_steps=MAX_STEPS, strategy="sequential")
        outcome = walk(step_at, settings=settings)
        each = (time.perf_counter() - begin) / len(outcome.trace)
        for rho in rhos:
            stop = stopped_at(outcome.trace, rho, result.known_accuracy)
            alpha = None if stop is None else stop.alpha
            if alpha is not None and alpha not in scored:
                scored[alpha] = grade(repair.at(alpha, score)[1])
            steps = len(outcome.trace) if stop is None else outcome.trace.index(stop) + 1
            point = {
                "rho": rho,
                "step": step,
                "status": (outcome.status if stop is None else Status.HEALED).value,
                "steps": steps,
                "search_seconds": steps * each,
                "chosen": None if stop is None else asdict(stop),
                **scored[alpha],
            }
            if sweep.bisect:
                halved = walk(step_at, settings=replace(settings, rho=rho, strategy="bisect"))
                chosen = None if halved.chosen is None else asdict(halved.chosen)
                point["bisect"] = {"steps": len(halved.trace), "chosen": chosen}
            points.append(point)
    return {"points": points, "curve": _curve(sweep.curve, model, result, known, score, grade)}


def stopped_at(trace: list[Step], rho: float, before: float) -> Step | None:
    """Where a sequential search with that rho would have stopped: the first step at or below the threshold."""
    return next((step for step in trace if step.known_accuracy <= rho * before + 1e-9), None)


def _steps(problem: Problem, result: HealResult, known: TensorDataset) -> Callable[[float], Step]:
    """What the known poison does at any s, on a copy of the model and the importances of a finished heal."""
    model = working_copy(problem.model, problem.device, known)
    batches = list(DatasetBatches(known, range(len(known)), problem.batch_size))
    hits = recorded(partial(seen, model, batches), torch.device(problem.device))
    return steps_of(model, result.retain, result.forget, lambda: Look(float(hits()[0]) / len(known)))


def _curve(
    points: int,
    model: nn.Module,
    result: HealResult,
    known: TensorDataset,
    score: Callable[[nn.Module], Scores],
    grade: Callable[[Scores], dict[str, float]],
) -> list[dict[str, float]]:
    if not points:
        return []

    def both(repaired_model: nn.Module) -> dict[str, float]:
        return {"known_accuracy": accuracy(repaired_model, known) / 100, **grade(score(repaired_model))}

    return [{**point._asdict(), **found} for point, found in tradeoff(model, result, around(result, points), both)]


def _known(problem: Problem) -> TensorDataset:
    """The known poison as the search saw it, on the device."""
    plain = problem.train_set if problem.plain_set is None else problem.plain_set
    return TensorDataset(*fetch(plain, problem.known, problem.device))
