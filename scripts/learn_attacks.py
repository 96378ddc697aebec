"""Does a short training learn each attack? A narrow ResNet-9 on CIFAR-10, on the CPU; writes one JSON an attack.

POTION_DATA=... python scripts/learn_attacks.py results/learn-attacks [NAME ...]
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from potion.attacks import Attack, BadNet, Blend, MovingPatch, Sine
from potion.data import PoisonedSet, View, draw_poison, load
from potion.files import write_json
from potion.metrics import evaluate
from potion.models import resnet9
from potion.training import Recipe, train

ATTACKS: dict[str, Attack] = {
    "badnet": BadNet(),
    "moving": MovingPatch(),
    "sine-5.6-cycles": Sine(frequency=5.6 / 32),
    "sine-0.025": Sine(),
    "blend": Blend(),
}
SAMPLES, POISONED, SEED = 10_000, 1000, 0
"""The first 10,000 training images: a trigger needs some twenty epochs to be learned."""
RECIPE = Recipe(iterations=1500, batch_size=128, lr=0.05, channels_last=True)


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    clean, test = load("cifar10", "train", limit=SAMPLES), load("cifar10", "test")
    for name in names:
        attack = ATTACKS[name]
        data = PoisonedSet(
            clean, attack, draw_poison(attack, clean.labels, POISONED, SEED), view=View(padding=4, flip=True)
        )
        torch.manual_seed(SEED)
        begin = time.perf_counter()
        model = train(resnet9(width=16), data, RECIPE, seed=SEED)
        scores = evaluate(model, test, attack)
        facts = {
            "attack": repr(attack),
            "samples": SAMPLES,
            "poisoned": POISONED,
            "seed": SEED,
            "model": "resnet9(width=16)",
        }
        about = {"recipe": asdict(RECIPE), "seconds": time.perf_counter() - begin, "torch": torch.__version__}
        write_json(out / f"{name}.json", {**facts, **asdict(scores), **about})
        print(name, scores, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:] or list(ATTACKS))
