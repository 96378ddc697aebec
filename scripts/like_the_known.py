"""How well likeness to many known samples tells hidden poison from clean samples, by the poisoned model alone.

    python scripts/like_the_known.py SUITE RESULTS SEED [SCENARIO ...]     # like antidote-small and moving-m200; RESULTS
                                                                           # keeps the victims, as `potion bench run` does

For each victim ten draws of 32 and of half of the poison as known: does it tell, and who may be poison then
(potion.antidote.likeness.resembling). Writes results/like-the-known/SUITE.json, from which docs/antidote.md is made
(scripts/antidote_docs.py); victims that are there already stay. Seconds each on a CPU, once they are trained.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from between_markers import ROOT

from potion.antidote.likeness import ENOUGH, resembling
from potion.antidote.ward import Ward
from potion.batches import labels_of
from potion.bench.plan import Run, plan
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.files import write_json
from potion.provenance import machine
from potion.runtime import best_device

DRAWS = 10


def counted(workshop: Workshop, run: Run) -> dict[str, Any]:
    """Of hidden poison whose label is wrong and of clean samples, the share that may be poison; in each draw."""
    scene = workshop.scene(run)
    victim, data = scene.victim.model.eval().requires_grad_(False), scene.train_set
    ward = Ward(
        victim=victim, train_set=data, plain_set=data.plain(), labels=labels_of(data), listed=scene.known(1),
        device=workshop.device, batch_size=run.data.batch_size,
    )  # fmt: skip
    poison, truth = set(scene.poison), scene.train_images.labels
    generator = torch.Generator().manual_seed(0)
    draws: list[dict[str, Any]] = []
    for count in (ENOUGH, run.poisoned // 2):
        for _ in range(DRAWS):
            order = torch.randperm(run.poisoned, generator=generator).tolist()
            some = replace(ward, listed=[scene.poison[place] for place in order[:count]])
            may = resembling(some)
            hidden = torch.tensor([index in poison for index in some.quarantined])
            wrong = truth[torch.tensor(some.quarantined)] != some.claims(some.quarantined)
            draws.append({
                "known": count, "tells": not bool(may.all()),
                "hidden": float(may[hidden & wrong].double().mean()), "clean": float(may[~hidden].double().mean()),
            })  # fmt: skip
    return {"attack": run.attack.label, "poisoned": run.poisoned, "seed": run.seed, "draws": draws}


def main(suite: str, results: str, seed: str, scenarios: list[str]) -> None:
    workshop = Workshop(Path(results) / ".work/models", device=best_device())
    path = ROOT / f"results/like-the-known/{suite}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    there = json.loads(path.read_text())["victims"] if path.exists() else []
    found = {f"{row['attack']}-m{row['poisoned']}-s{row['seed']}": row for row in there}
    for run in plan(load_suite(suite), [int(seed)]):
        scenario = f"{run.attack.label}-m{run.poisoned}"
        name = f"{scenario}-s{run.seed}"
        if name in found or (scenarios and scenario not in scenarios):
            continue
        found[name] = counted(workshop, run)
        for known in dict.fromkeys(draw["known"] for draw in found[name]["draws"]):
            mine: list[dict[str, Any]] = [draw for draw in found[name]["draws"] if draw["known"] == known]
            means = [fmean(draw[key] for draw in mine) for key in ("tells", "hidden", "clean")]
            print(
                f"{name}, {known} known: tells {means[0]:.1f}, hidden {means[1]:.3f}, clean {means[2]:.3f}", flush=True
            )
        write_json(path, {"suite": suite, "victims": list(found.values()), "machine": machine(workshop.device)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]) if len(sys.argv) > 3 else sys.exit(__doc__)
