"""How much poison is in what the antidote takes for surely clean, as it is chosen now and as it was at first.

    python scripts/surely_clean.py SUITE RESULTS [SCENARIO ...]      # like antidote-majority and badnet-m2000; RESULTS keeps
                                                                     # the victims of seed 0, as `potion bench run` does

For each victim forty draws of one and of ten known samples that obey. *At first*: reckoned from the middle of all that has
the label, and half of that. Writes results/surely-clean/SUITE.json, from which docs/antidote.md is made
(scripts/antidote_docs.py); victims that are there already stay. Seconds each on a CPU, once they are trained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from between_markers import ROOT

from potion.antidote.likeness import SHOWN, likeness
from potion.antidote.ward import Ward
from potion.batches import labels_of
from potion.bench.plan import Run, plan
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.files import write_json
from potion.provenance import machine
from potion.runtime import best_device

KNOWN = (1, 10)
DRAWS = 40


def counted(workshop: Workshop, run: Run) -> dict[str, Any]:
    """The poison that is shown, in each draw, by either rule."""
    scene, size = workshop.scene(run), run.data.batch_size
    victim, data = scene.victim.model.eval().requires_grad_(False), scene.train_set
    ward = Ward(
        victim=victim, train_set=data, plain_set=data.plain(), labels=labels_of(data), listed=scene.known(1),
        device=workshop.device, batch_size=size,
    )  # fmt: skip
    rows = [*ward.quarantined, *ward.known]
    seen, scores = ward.sight
    poison = torch.isin(torch.tensor(rows), torch.tensor(list(scene.poison)))
    fires = torch.nonzero(poison & (scores.argmax(1) == ward.claims(rows))).flatten()
    generator = torch.Generator().manual_seed(0)
    counts = {"poison": int(poison.sum()), "clean": int((~poison).sum()), "usual": ward.usual}
    draws: list[dict[str, Any]] = []
    for count in KNOWN:
        some = torch.zeros(DRAWS, len(rows), dtype=torch.bool)
        for known in some:
            known[fires[torch.randperm(len(fires), generator=generator)[:count]]] = True
        for rule, usual in {"now": ward.usual, "at first": len(rows)}.items():
            shown = int(SHOWN * min(len(rows) - count, usual))
            wrong = []
            for known in some:
                least = likeness(seen, known, ward.spread, usual)[~known].argsort()[:shown]
                wrong.append(int(poison[~known][least].sum()))
            draws.append({"known": count, "rule": rule, "shown": shown, "poison": wrong})
    return {"attack": run.attack.label, "poisoned": run.poisoned, **counts, "draws": draws}


def main(suite: str, results: str, scenarios: list[str]) -> None:
    workshop = Workshop(Path(results) / ".work/models", device=best_device())
    path = ROOT / f"results/surely-clean/{suite}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    there = json.loads(path.read_text())["victims"] if path.exists() else []
    found = {f"{row['attack']}-m{row['poisoned']}": row for row in there}
    for run in plan(load_suite(suite), [0]):
        name = f"{run.attack.label}-m{run.poisoned}"
        if name in found or (scenarios and name not in scenarios):
            continue
        found[name] = counted(workshop, run)
        for each in found[name]["draws"]:
            mean, most = fmean(each["poison"]), max(each["poison"])
            print(
                f"{name}, {each['known']} known, {each['rule']}: {mean:.1f} of {each['shown']}, {most} at most",
                flush=True,
            )
        write_json(path, {"suite": suite, "victims": list(found.values()), "machine": machine(workshop.device)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:]) if len(sys.argv) > 2 else sys.exit(__doc__)
