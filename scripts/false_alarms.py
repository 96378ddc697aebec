"""How often the antidote believes in a trigger where there is none, and where there is one; small networks, on a CPU.

python scripts/false_alarms.py

Networks with a width of 8 on 4,000 images of Fashion-MNIST: clean ones that hardly had time to learn and ones that know
their data by heart, with samples of four labels named at random; and poisoned ones, with poisoned samples named; lists
of one, five and twenty. Writes results/false-alarms/fashion-mnist.json, from which docs/antidote_results.md is made
(scripts/antidote_docs.py).
About half an hour on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

from potion.antidote.course import first_lesson
from potion.antidote.evidence import weighed
from potion.antidote.laboratory import triggers_in
from potion.antidote.ward import Ward
from potion.attacks import Attack, BadNet
from potion.data import PoisonedSet, draw_poison, load
from potion.files import write_json
from potion.models import build
from potion.provenance import machine
from potion.runtime import generator_for
from potion.training import Recipe, train

ROOT = Path(__file__).parent.parent
ATTACK = BadNet(size=3)
CPU = torch.device("cpu")
VICTIMS = [
    {"iterations": iterations, "poisoned": poisoned, "seed": seed}
    for iterations, poisoned in ((150, 0), (1500, 0), (600, 40), (600, 100))
    for seed in (0, 1, 2)
]


def lists(labels: torch.Tensor, poison: list[int], seed: int) -> Iterator[tuple[int, list[int]]]:
    """Labels, and samples with that label that are said to be poison: one, another one, five, twenty."""
    for label in [ATTACK.target] if poison else [0, 3, 6, 8]:
        named = poison if poison else torch.nonzero(labels == label).flatten().tolist()
        order = torch.randperm(len(named), generator=generator_for(f"names {label}", seed)).tolist()
        for begin, end in ((0, 1), (1, 2), (2, 7), (7, 27)):
            yield label, [named[place] for place in order[begin:end]]


def network(
    iterations: int, poisoned: int, seed: int, attack: Attack = ATTACK
) -> tuple[nn.Module, PoisonedSet, list[int]]:
    """A small network, what it has learned from, and which of that is poison."""
    images = load("fashion-mnist", "train", limit=4000)
    poison = draw_poison(attack, images.labels, poisoned, seed) if poisoned else []
    data = PoisonedSet(images, attack, poison)
    torch.manual_seed(seed)
    model = build("resnet9", classes=10, channels=1, width=8, mean=[0.2192], std=[0.3327])
    recipe = Recipe(iterations=iterations, batch_size=100, lr=0.05)
    train(model, data, recipe, seed=seed, device=CPU, progress=False)
    return model.eval().requires_grad_(False), data, poison


def looked_at(victim: dict[str, int]) -> list[dict[str, Any]]:
    """What speaks for a trigger in each list of a network."""
    torch.set_num_threads(1)
    model, data, poison = network(victim["iterations"], victim["poisoned"], victim["seed"])
    labels = torch.as_tensor(data.labels).long()
    found = []
    for label, known in lists(labels, poison, victim["seed"]):
        ward = Ward(
            victim=model, train_set=data, plain_set=data.plain(), labels=labels, listed=known, device=CPU,
            batch_size=200, seed=victim["seed"],
        )  # fmt: skip
        triggers = triggers_in(ward, ward.known, ward.settings.sources)
        taught = first_lesson(ward, triggers)
        evidence = weighed(ward, triggers, taught)
        found.append({**victim, "label": label, "known": len(known), "trusted": ward.accuracy(model, ward.held_out)})
        found[-1] |= {"convincing": evidence.convincing, **evidence.to_dict()}
        print(found[-1], flush=True)
    return found


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        rows = [row for rows in pool.map(looked_at, VICTIMS) for row in rows]
    out = ROOT / "results/false-alarms"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "fashion-mnist.json", {"rows": rows, "machine": machine(CPU)})


if __name__ == "__main__":
    main()
