"""The paper's methods, an importance and PTN search, through the same door as everybody's; and XLF with an eye on damage."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from potion.baselines.problem import Method, Problem, Repair
from potion.heal import heal
from potion.importance import KINDS

__all__ = ["PTN_METHODS"]


def _heal(problem: Problem, *, method: str, **watching: Any) -> Repair:
    result = heal(
        problem.model,
        problem.train_set,
        problem.known,
        method,
        replace(problem.search, **watching),
        batch_size=problem.batch_size,
        device=problem.device,
        seed=problem.seed,
        progress=problem.progress,
        unaugmented=problem.plain_set,
        retain_share=1.0,  # all of it, as in the paper
        cache=problem.cache,
        workers=problem.workers,
    )
    return Repair(
        model=result.model.to(problem.device),
        result=result,
        notes={"weights_changed": result.patch.count, "summary": result.summary()},
    )


PTN_METHODS: Final[dict[str, Method]] = {
    **{kind: partial(_heal, method=kind) for kind in KINDS},
    "xlf_guarded": partial(_heal, method="xlf", guard=2.0),
    "xlf_trusted": partial(_heal, method="xlf", stop="trusted"),
}
