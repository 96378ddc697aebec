"""How much the importances of the known poison depend on the draw of the augmentation, for each method.

    python scripts/draws.py          (the embedded victim, about a minute on one core)

Twenty draws for each number of known samples; writes results/draws/embedded.json, from which docs/differences.md is made
(scripts/differences.py).
"""

from __future__ import annotations

from pathlib import Path

import torch

from potion.batches import DatasetBatches
from potion.embedded import Embedded, embedded_model
from potion.files import write_json
from potion.importance import importances
from potion.provenance import machine
from potion.runtime import forked_rng

ROOT = Path(__file__).parent.parent
KNOWN = (1, 20, 100)
DRAWS = range(20)


def main() -> None:
    scenario, victim = Embedded(), embedded_model("victim")
    data = scenario.train_set()
    rows = []
    for known in KNOWN:
        for method in ("xlf", "lf", "ssd"):
            sums = []
            for draw in DRAWS:
                with forked_rng(draw):
                    batches = DatasetBatches(data, scenario.known(known), 512, seed=draw, part=(0, 1))
                    found = importances(victim, batches, method)
                sums.append(float(sum(each.double().sum() for each in found.values())))
            rows.append({"method": method, "known": known, "sums": sums})
            print(f"{method}, {known} known: largest over smallest {max(sums) / min(sums):.3g}")
    out = ROOT / "results/draws"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "embedded.json", {"rows": rows, "machine": machine(torch.device("cpu"))})


if __name__ == "__main__":
    main()
