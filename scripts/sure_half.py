"""How much poison is in the half of a label that is taken to be surely clean, and in other halves.

    python scripts/sure_half.py antidote-small RESULTS [SEED]     # RESULTS keeps the victims of the suite

For every attack of the suite and lists of one and ten known samples: the poison in the half that is least like the known and
the clearly named, which is what the antidote takes, in the half least like the known alone, and in the half that the first
lesson has left in place best. Writes results/sure-half/SUITE.json, from which docs/antidote.md is made
(scripts/antidote_docs.py). About an hour on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from between_markers import ROOT
from torch import Tensor

from potion.antidote import Antidote, first_lesson
from potion.batches import labels_of
from potion.bench.plan import plan
from potion.bench.scene import Scene
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.files import write_json
from potion.likeness import SHOWN, Likened, surely_clean
from potion.provenance import machine
from potion.verdict import Verdict, carriers_in
from potion.ward import Ward

CPU = torch.device("cpu")
LISTS = [range(begin, begin + 1) for begin in range(0, 100, 20)] + [range(100, 110)]


def looked_at(scene: Scene) -> Iterator[dict[str, Any]]:
    """The poison in the half that each rank would take, one known list after the other."""
    data, truth = scene.train_set, scene.train_images.labels.cpu()
    labels = labels_of(data)
    wrong = [index for index in scene.poison if labels[index] != truth[index]]
    victim, hidden = scene.victim.model.eval().requires_grad_(False), set(wrong)
    for places in LISTS:
        known = [wrong[place] for place in places]
        ward = Ward(victim, data, data.plain(), labels, known, Antidote(), CPU, 256, 0, False)
        verdict = Verdict.by(first_lesson(ward, ward.localised(ward.known, ward.settings.sources)), ward)
        everybody = torch.ones(len(ward.quarantined), dtype=torch.bool)
        found = {
            "surely clean": surely_clean(verdict, carriers_in(ward, verdict.poison)),
            "unlike the known": half(ward, -Likened(ward).alike[: len(everybody)], everybody),
            "well placed": half(ward, verdict.placed, everybody),
        }
        yield {
            "attack": scene.run.attack.label,
            "obeys": scene.victim_scores.attack_success_rate,
            "known": len(known),
            "hidden": len(hidden) - len(known),
            "named": len(hidden.intersection(ward.named(verdict.poison))),
            "half": len(found["surely clean"]),
            "poison": {name: len(hidden.intersection(some)) for name, some in found.items()},
        }


def half(ward: Ward, values: Tensor, among: Tensor) -> list[int]:
    """The samples with the larger values."""
    rows = torch.nonzero(among).flatten()
    return ward.named(rows[values[rows].argsort(descending=True)[: int(SHOWN * len(rows))]])


def main() -> None:
    suite, results, seed = load_suite(sys.argv[1]), sys.argv[2], int((sys.argv[3:] or ["0"])[0])
    shop = Workshop(f"{results}/.work/models", device=CPU)
    rows = []
    for run in plan(suite, [seed]):
        if run.method == "none":
            for row in looked_at(shop.scene(run)):
                rows.append(row | {"poisoned": run.poisoned, "seed": run.seed})
                print(rows[-1], flush=True)
    out = ROOT / "results/sure-half"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{suite.name}.json", {"rows": rows, "machine": machine(CPU)})


if __name__ == "__main__":
    main()
