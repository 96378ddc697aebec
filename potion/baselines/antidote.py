"""The antidote, through the same door as everybody's."""

from __future__ import annotations

from potion.baselines.problem import Problem, Repair
from potion.discover import discover
from potion.heal import heal
from potion.types import Status

__all__ = ["antidote"]


def antidote(problem: Problem) -> Repair:
    """Localise the trigger in the known poison, find the rest of it, teach the model the truth (this project's, 2026).

    Where it does not take, the result is that of guarded XLF, and the notes say so.
    """
    plain_set = problem.train_set if problem.plain_set is None else problem.plain_set
    result = heal(
        problem.model,
        problem.train_set,
        problem.known,
        "antidote",
        problem.search,
        batch_size=problem.batch_size,
        device=problem.device,
        seed=problem.seed,
        progress=problem.progress,
        unaugmented=plain_set,
        cache=problem.cache,
        workers=problem.workers,
        antidote=problem.antidote,
    )
    notes = {"summary": result.summary(), "weights_changed": result.patch.count}
    if result.treatment is not None:
        notes |= {key: value for key, value in result.treatment.to_dict().items() if key != "corrected"}
    if result.status is Status.HEALED:
        suspects = discover(
            problem.model, result, problem.train_set, unaugmented=plain_set, device=problem.device, seed=problem.seed,
            workers=problem.workers,
        )  # fmt: skip
        notes["discovered"] = suspects.poison
    return Repair(model=result.model.to(problem.device), result=result, notes=notes)
