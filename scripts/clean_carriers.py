"""How many clean samples are taken for carriers, with and without a look at how steady trusted ones are.

    POTION_DATA=... python scripts/clean_carriers.py RESULTS       # RESULTS keeps the victims of vit-imagenette-half
    python scripts/clean_carriers.py embedded                      # the victim that comes with the package

The true poison tells that mixtures do, so this is about the limits alone. Writes results/clean-carriers/VICTIM.json, from
which docs/antidote.md is made (scripts/antidote_docs.py). Minutes on a CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from between_markers import ROOT
from torch import nn

from potion.antidote.carriers import MIXED, ORDINARY, Carriers, steadiness
from potion.antidote.ward import Ward
from potion.batches import labels_of
from potion.bench.plan import plan
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.data import PoisonedSet
from potion.embedded import Embedded, embedded_model
from potion.files import write_json
from potion.provenance import machine

CPU = torch.device("cpu")


def victims(where: str) -> Iterator[tuple[str, nn.Module, PoisonedSet, Sequence[int], list[int]]]:
    """Names, models, their data, the poison in them, and one known sample."""
    if where == "embedded":
        embedded = Embedded()
        yield "embedded", embedded_model("victim"), embedded.train_set(), embedded.poison(), embedded.known(1)
        return
    workshop, seen = Workshop(Path(where) / ".work/models"), set()
    for run in plan(load_suite("vit-imagenette-half"), [0]):
        name = f"half-{run.attack.label}-m{run.poisoned}"
        if run.poisoned == 500 and run.attack.label != "sine" and name not in seen:
            seen.add(name)
            scene = workshop.scene(run)
            yield name, scene.victim.model, scene.train_set, scene.poison, scene.known(1)


def counted(model: nn.Module, data: PoisonedSet, poison: Sequence[int], known: list[int]) -> dict[str, Any]:
    """Who is a carrier by either rule."""
    victim, labels = model.eval().requires_grad_(False), labels_of(data)
    ward = Ward(
        victim=victim, train_set=data, plain_set=data.plain(), labels=labels, listed=known, device=CPU, batch_size=256,
    )  # fmt: skip
    steady, trusted = (
        steadiness(victim, ward.plain_set, some, ward.examples(MIXED), 256)
        for some in (ward.quarantined, ward.held_out[MIXED : MIXED + ORDINARY])
    )
    bad = torch.isin(torch.tensor(ward.quarantined), torch.tensor(list(poison)))
    rules = {"alike": trusted[:0], "beside trusted": trusted}
    found = {
        rule: Carriers.among(steady, ward.claims(ward.quarantined), bad, ordinary).carries
        for rule, ordinary in rules.items()
    }
    counts = {rule: {"poison": int((who & bad).sum()), "clean": int((who & ~bad).sum())} for rule, who in found.items()}
    return {"poison": int(bad.sum()), "clean": int((~bad).sum()), "carriers": counts}


def main(where: str) -> None:
    out = ROOT / "results/clean-carriers"
    out.mkdir(parents=True, exist_ok=True)
    for name, model, data, poison, known in victims(where):
        found = counted(model, data, poison, known)
        print(name, found, flush=True)
        write_json(out / f"{name}.json", {"victim": name, **found, "machine": machine(CPU)})


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
