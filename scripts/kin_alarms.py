"""How often the antidote's second look (potion/antidote/kin.py) finds a family where there is none, and where there is one.

python scripts/kin_alarms.py

The clean networks of scripts/false_alarms.py, and poisoned ones whose trigger masks do badly with: a moving patch in few
samples, and a warp; the second look alone, with lists of one, five and twenty names. Writes
results/false-alarms/kin.json, from which docs/antidote_results.md is made (scripts/antidote_docs.py). A quarter of an hour
on two cores.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from false_alarms import CPU, lists, network

from potion.antidote.kin import family
from potion.antidote.ward import Ward
from potion.attacks import MovingPatch, Warp
from potion.files import write_json
from potion.provenance import machine

ROOT = Path(__file__).parent.parent
ATTACKS = {"moving": MovingPatch(), "warp": Warp()}
VICTIMS = [
    {"iterations": iterations, "attack": attack, "poisoned": poisoned, "seed": seed}
    for iterations, attack, poisoned in ((150, None, 0), (1500, None, 0), (1500, "moving", 40), (1500, "warp", 200))
    for seed in (0, 1, 2)
]


def looked_at(victim: dict[str, Any]) -> list[dict[str, Any]]:
    """What the second look makes of each list of a network."""
    torch.set_num_threads(1)
    made = {"attack": ATTACKS[victim["attack"]]} if victim["attack"] else {}
    model, data, poison = network(victim["iterations"], victim["poisoned"], victim["seed"], **made)
    labels = torch.as_tensor(data.labels).long()
    found = []
    for label, known in lists(labels, poison, victim["seed"]):
        ward = Ward(
            victim=model, train_set=data, plain_set=data.plain(), labels=labels, listed=known, device=CPU,
            batch_size=200, seed=victim["seed"],
        )  # fmt: skip
        seen = family(ward, ward.taught(ward.trusted, {}, [], ward.settings.quarantine_epochs, "quarantine 0"))
        new = [index for index in seen.members if index not in known]
        found.append({**victim, "label": label, "known": len(known), "convincing": seen.convincing, **seen.to_dict()})
        found[-1] |= {"new": len(new), "new_poison": len(set(new) & set(poison))}
        print(found[-1], flush=True)
    return found


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        rows = [row for rows in pool.map(looked_at, VICTIMS) for row in rows]
    write_json(ROOT / "results/false-alarms/kin.json", {"rows": rows, "machine": machine(CPU)})


if __name__ == "__main__":
    main()
