"""What another precision of the importances does to which weights are selected, and to the repair.

    python scripts/precision.py embedded
    python scripts/precision.py goel-cifar10 [RESULTS]

The victims of scripts/retain_share.py. ``overlap`` is |A and B| / |A or B| of the weights selected at the chosen point,
against those selected in float32; the row "float32, another seed" says how much the order of the data and its augmentation
alone change. Writes results/precision/NAME.json, from which docs/speed.md is made (scripts/speed_docs.py).
"""

from __future__ import annotations

import sys
from typing import Any

from retain_share import ROOT, Case, cases_named

import potion
from potion.files import write_json
from potion.metrics import damage, healed
from potion.provenance import machine
from potion.runtime import best_device

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("float32", {"precision": "float32"}),
    ("tf32", {"precision": "tf32"}),
    ("bfloat16", {"precision": "bfloat16"}),
    ("float32, another seed", {"precision": "float32", "seed": 100}),
]


def selected(patch: potion.Patch) -> set[tuple[str, int]]:
    return {(name, index) for name, change in patch.changes.items() for index in change.indices.tolist()}


def repaired(case: Case, settings: dict[str, Any]) -> potion.HealResult:
    given = {"seed": case.seed} | settings
    return potion.heal(
        case.model, case.data, case.known, "xlf", batch_size=case.batch_size, progress=False, unaugmented=case.plain,
        device=best_device(), **given,
    )  # fmt: skip


def main() -> None:
    rows = []
    for case in cases_named(*sys.argv[1:3]):
        exact: set[tuple[str, int]] = set()
        for name, settings in VARIANTS:
            result = repaired(case, settings)
            scores, weights = case.score(result.model), selected(result.patch)
            exact = exact or weights
            row = {
                "case": case.name, "seed": case.seed, "precision": name, "status": result.status.value,
                "healed": healed(scores, case.reference), "damage": damage(scores, case.before),
                "weights": len(weights), "overlap": len(weights & exact) / max(1, len(weights | exact)),
                "steps": len(result.trace), "seconds": result.timings.get("retain importances"),
            }  # fmt: skip
            rows.append(row)
            print(
                f"{case.name}, seed {case.seed}, {name}: {row['healed']:.1f} % healed, {row['damage']:+.2f}, "
                f"overlap {row['overlap']:.3f}",
                flush=True,
            )
    out = ROOT / "results/precision"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{sys.argv[1]}.json", {"machine": machine(best_device()), "rows": rows})


if __name__ == "__main__":
    main()
