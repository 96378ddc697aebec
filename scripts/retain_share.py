"""What estimating the retain importances on a part of the training set does to the repair.

    python scripts/retain_share.py embedded                      (the embedded victim, about ten minutes on two cores)
    python scripts/retain_share.py goel-cifar10 [RESULTS]        (victims of a suite; RESULTS keeps the trained ones)

Victims of a suite have 500 poisoned samples; the retrains they are compared with are those of its committed results.
XLF, three seeds; a seed draws the known poison, the part of the training set and the augmentation, and for a suite the
victim too. Writes results/retain-share/NAME.json, from which docs/speed.md is made (scripts/speed_docs.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.utils.data import Dataset

import potion
from potion.bench.plan import plan
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.embedded import Embedded, embedded_model
from potion.files import write_json
from potion.metrics import Scores, damage, evaluate, healed
from potion.provenance import machine
from potion.runtime import best_device

ROOT = Path(__file__).parent.parent
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)
SEEDS = (0, 1, 2)


class Case(NamedTuple):
    """One victim and some known poison."""

    name: str
    seed: int
    model: nn.Module
    data: Dataset[Any]
    plain: Dataset[Any]
    known: list[int]
    batch_size: int
    before: Scores
    reference: Scores
    score: Callable[[nn.Module], Scores]


def embedded_cases() -> Iterator[Case]:
    scenario = Embedded()

    def score(model: nn.Module) -> Scores:
        return evaluate(model, scenario.test, scenario.attack)

    victim = embedded_model("victim")
    before, reference = score(victim), score(embedded_model("retrain_clean"))
    data = scenario.train_set()
    for known in (100, 20, 1):
        for seed in SEEDS:
            known_poison = scenario.known(known, seed)
            name = f"200 poisoned, {known} known"
            yield Case(name, seed, victim, data, data.plain(), known_poison, 256, before, reference, score)


def suite_cases(name: str, results: Path) -> Iterator[Case]:
    workshop = Workshop(results / ".work/models")
    for run in plan(load_suite(name), SEEDS):
        if run.method == "xlf" and run.poisoned == 500 and run.known in (1, 50, 250):
            scene = workshop.scene(run)
            problem = scene.problem(run, scene.victim.model, scene.known(run.known))
            committed = json.loads((ROOT / "results" / run.path).read_text())
            yield Case(
                f"{run.poisoned} poisoned, {run.known} known", run.seed, problem.model, problem.train_set,
                scene.train_set.plain(), problem.known, problem.batch_size, scene.victim_scores,
                Scores(**committed["reference"]), scene.scored,
            )  # fmt: skip


def cases_named(name: str, results: str | None = None) -> Iterator[Case]:
    """The victims of the embedded data or of a suite, three seeds each."""
    return embedded_cases() if name == "embedded" else suite_cases(name, Path(results or "results"))


def main() -> None:
    name = sys.argv[1]
    rows = []
    for case in cases_named(*sys.argv[1:3]):
        for share in SHARES:
            result = potion.heal(
                case.model, case.data, case.known, "xlf", batch_size=case.batch_size, seed=case.seed, progress=False,
                unaugmented=case.plain, retain_share=share, device=best_device(),
            )  # fmt: skip
            scores = case.score(result.model)
            row = {
                "case": case.name, "seed": case.seed, "share": share, "status": result.status.value,
                "healed": healed(scores, case.reference), "damage": damage(scores, case.before),
                "seconds": result.timings.get("retain importances"), "steps": len(result.trace),
            }  # fmt: skip
            rows.append(row)
            print(f"{case.name}, seed {case.seed}, {share:4.0%}: {row['healed']:5.1f} % healed, {row['damage']:+.2f}")
    out = ROOT / "results/retain-share"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{name}.json", {"machine": machine(best_device()), "rows": rows})


if __name__ == "__main__":
    main()
