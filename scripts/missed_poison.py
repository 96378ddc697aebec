"""Which poison `discover` misses, from the lists of samples in committed results and the true labels in POTION_DATA.

python scripts/missed_poison.py

Counts, at 10 % known, the hidden poison and what of it was not named, and how much of either shows the attacker's class
anyway: its label is right, and only the trigger makes it poison. Writes results/missed-poison/SUITE.json, from which
docs/antidote_results.md is made (scripts/antidote_docs.py).
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import torch

from potion.bench.plan import plan
from potion.bench.results import Results
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.files import write_json

ROOT = Path(__file__).parent.parent
SUITES = ("antidote-cifar10", "antidote-cifar10-baked")


def counted(suite: str, workshop: Workshop) -> list[dict[str, object]]:
    """One row a victim size and trigger, over the seeds whose trigger was found."""
    runs = [run for run in plan(load_suite(suite)) if run.method == "antidote" and 10 * run.known == run.poisoned]
    found = Results.of(ROOT / "results", runs).records
    rows: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    obeyed: dict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        record = found.get(run.path)
        if record is None or "discovered" not in record["notes"]:
            continue
        scene = workshop.scene(run)
        labels = scene.train_images.labels
        hidden = set(scene.poison) - set(scene.known(run.known))
        missed = hidden - set(record["notes"]["discovered"])
        right = {sample for sample in hidden if int(labels[sample]) == scene.attack.target}
        cell = run.attack.label, run.poisoned
        rows[cell] += Counter(
            runs=1, hidden=len(hidden), right=len(right), missed=len(missed), missed_right=len(missed & right)
        )
        obeyed[cell].append(record["victim"]["attack_success_rate"])
    return [
        {
            "attack": cell[0],
            "poisoned": cell[1],
            "attack_success_rate": sum(obeyed[cell]) / len(obeyed[cell]),
            **dict(row),
        }
        for cell, row in sorted(rows.items())
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as models:
        workshop = Workshop(Path(models), device=torch.device("cpu"))
        for suite in SUITES:
            rows = counted(suite, workshop)
            (ROOT / "results/missed-poison").mkdir(exist_ok=True)
            write_json(ROOT / f"results/missed-poison/{suite}.json", rows)
            print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
