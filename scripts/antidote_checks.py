"""What the antidote is worth where things are not as they should be, and what each of its parts is worth.

    python scripts/antidote_checks.py robustness antidote-cifar10 [RESULTS] [ATTACK ...]
    python scripts/antidote_checks.py ablation antidote-cifar10 [RESULTS] [ATTACK ...]
    python scripts/antidote_checks.py relapse antidote-cifar10 [RESULTS] [ATTACK ...]

    python scripts/antidote_checks.py robustness embedded       # relapse, ablation; a CPU will do: minutes
    python scripts/antidote_checks.py ablation antidote-small [RESULTS] [ATTACK ...]        # likewise: an hour an attack

Victims of the suite's middle size, seed 2; RESULTS keeps the trained models of the suite, as ``potion bench run`` does. Or
the victim that comes with the package, where the seed is that of the wrong names.
*robustness* (10 % of the poison known): a list with wrong names in it, a clean model, the recall of the attacker's class,
what triggered images are taken for, and five more epochs on the contaminated data. *ablation* (one sample known): the
antidote without one of its parts at a time. *relapse* (10 % known): five more epochs on what is left of the data once the
known and the discovered poison is taken out. Writes results/antidote-WHAT/ATTACK.json for antidote-cifar10, for others
results/antidote-WHAT-embedded/ATTACK.json, and so on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import potion
from potion.antidote import course
from potion.antidote.medicine import Medicine
from potion.antidote.trigger import Trigger
from potion.antidote.verdict import Verdict
from potion.antidote.ward import Ward
from potion.bench.plan import plan
from potion.bench.scene import Scene
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.data import PoisonedSet
from potion.embedded import Embedded, embedded_model
from potion.files import write_json
from potion.metrics import Scores, damage, evaluate, healed, predict
from potion.provenance import machine
from potion.runtime import best_device, copied, generator_for
from potion.training import train

ROOT = Path(__file__).parent.parent
SEED, EPOCHS = 2, 5


class EmbeddedScene:
    """The victim that comes with the package, as if a workshop had made it."""

    def __init__(self) -> None:
        embedded = Embedded()
        self.attack, self.poison, self.recipe = embedded.attack, embedded.poison(), embedded.recipe
        self.train_set, self.train_images, self.test_images = embedded.train_set(), embedded.train, embedded.test
        self.known = embedded.known
        self.victim, clean = (
            SimpleNamespace(model=embedded_model(name).to(best_device())) for name in ("victim", "retrain_clean")
        )
        self.trained = lambda left_out: clean
        self.victim_scores, self.reference_scores = self.scored(self.victim.model), self.scored(clean.model)

    def scored(self, model: nn.Module) -> Scores:
        """The three accuracies on the test images."""
        return evaluate(model, self.test_images, self.attack)


def treated(scene: Scene, model: nn.Module, known: list[int], data: PoisonedSet | None = None, **more: Any) -> Any:
    """The antidote's result."""
    data = data or scene.train_set
    return potion.heal(
        model, data, known, "antidote", batch_size=scene.recipe.batch_size, device=best_device(), progress=False,
        unaugmented=data.plain(), **more,
    )  # fmt: skip


def graded(scene: Scene, result: Any) -> dict[str, Any]:
    scores: Scores = scene.scored(result.model)
    return {
        "status": result.status.value,
        "method": result.method, "summary": result.summary(), **asdict(scores),
        "healed": healed(scores, scene.reference_scores), "damage": damage(scores, scene.victim_scores),
        "seconds": sum(result.timings.values()),
    }  # fmt: skip


def classes_of(scene: Scene, model: nn.Module) -> dict[str, Any]:
    """The recall of the attacker's class, and what triggered images of each class are taken for."""
    clean, truth = predict(model, scene.test_images)
    fired, _ = predict(model, scene.test_images, scene.attack)
    count = len(scene.train_images.classes)
    target = int(scene.attack.relabel(truth[:1], torch.tensor([0]))[0])
    mine = truth == target
    return {
        "recall": 100 * float((clean[mine] == target).float().mean()),
        "triggered": torch.bincount(count * truth + fired, minlength=count**2).view(count, count).tolist(),
    }


def further(scene: Scene, model: nn.Module, left_out: Collection[int] = ()) -> list[dict[str, float]]:
    """Scores after each of five epochs of going on with the contaminated data, at the rate at which training ended."""
    rows = sorted(set(range(len(scene.train_set))).difference(left_out))
    student, steps = copied(model), len(rows) // scene.recipe.batch_size
    recipe = replace(scene.recipe, iterations=steps, lr=0.2 * scene.recipe.lr, warm_up=0.0, decay=0.0)
    found = []
    for epoch in range(EPOCHS):
        train(student, scene.train_set, recipe, indices=rows, seed=epoch, device=best_device(), progress=False)
        found.append(asdict(scene.scored(student)))
    return found


def robustness(scene: Scene, label: str) -> Iterator[tuple[str, Any]]:
    known = scene.known(len(scene.poison) // 10)
    victim, reference = scene.victim.model, scene.trained(scene.poison).model
    poison = set(scene.poison)
    names = generator_for(f"wrong names {label}", SEED)
    order = torch.randperm(len(scene.train_set), generator=names).tolist()
    clean = [index for index in order if index not in poison]
    untouched = PoisonedSet(scene.train_images, scene.attack, [], view=scene.train_set.view)
    target = int(scene.train_set.labels[known[0]])
    ordinary = [index for index in clean if int(untouched.labels[index]) == target]

    result = treated(scene, victim, known)
    yield "as it should be", graded(scene, result)
    right, count = known[: len(known) * 9 // 10], len(known) // 10
    yield "10% of the names wrong", graded(scene, treated(scene, victim, right + clean[:count]))
    yield "10% wrong, of its class", graded(scene, treated(scene, victim, right + ordinary[:count]))
    models = {"victim": victim, "healed": result.model, "reference": reference}
    yield "classes", {name: classes_of(scene, model) for name, model in models.items()}
    yield "clean model", {
        str(count): {
            "status": found.status.value, "summary": found.summary(), "weights_changed": found.patch.count,
            "damage": damage(scene.scored(found.model), scene.reference_scores),
        }
        for count in (1, len(known))
        for found in [treated(scene, reference, ordinary[:count], untouched)]
    }  # fmt: skip
    del models["victim"]
    yield "further training", {name: further(scene, model) for name, model in models.items()}


def relapse(scene: Scene, label: str) -> Iterator[tuple[str, Any]]:
    known, victim = scene.known(len(scene.poison) // 10), scene.victim.model
    result = treated(scene, victim, known)
    named = potion.discover(victim, result, scene.train_set, unaugmented=scene.train_set.plain(), device=best_device())
    taken = {*known, *named.poison}
    yield "taken out", {"poison": len(taken.intersection(scene.poison)), "clean": len(taken.difference(scene.poison))}
    yield "further training", {"rest": further(scene, result.model, taken)}


def without(thing: Any, name: str, instead: Callable[..., Any]) -> Any:
    return patch.object(thing, name, instead)


ABLATIONS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "all of it": ({}, []),
    "no masks": ({}, [without(course, "triggers_in", lambda *_, **__: [])]),
    "no pattern": ({}, [without(course, "patterns_in", lambda *_: [])]),
    "no transplants at all": ({}, [without(Medicine, "_transplanted", lambda _, inputs, __: inputs)]),
    "no corrected poison": (
        {}, [without(Verdict, "_corrections", lambda *_: {}), without(Ward, "truth", lambda *_: {})],
    ),
    "no carriers": ({"carriers": False}, []),
    "nothing shown as clean": ({}, [without(course, "surely_clean", lambda *_: [])]),
    "masks cut once": ({}, [without(course, "looked_again", lambda _, triggers, __: list(triggers))]),
    "no wider patches": ({}, [without(Trigger, "wider", lambda trigger: trigger)]),
    "no moved patches": ({}, [without(Trigger, "moved", lambda trigger, _: trigger)]),
    "one quarantine": ({"quarantines": 1}, []),
    "one round": ({"rounds": 1}, []),
    "nobody quarantined": (
        {"carriers": False},
        [
            without(Verdict, "better", lambda verdict, *_: list(verdict.ward.quarantined)),
            without(Verdict, "_corrections", lambda *_: {}),
        ],
    ),
}  # fmt: skip


@contextmanager
def all_of(changes: list[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        yield


def ablation(scene: Scene, label: str) -> Iterator[tuple[str, Any]]:
    for name, (settings, changes) in ABLATIONS.items():
        with all_of(changes):
            result = treated(scene, scene.victim.model, scene.known(1), antidote=potion.Antidote(**settings))
        grade = graded(scene, result)
        print(f"  {name}: {grade['status']}, {grade['healed']:.1f} % healed, {grade['damage']:+.2f}")
        yield name, grade


def scenes(suite: str, results: str, attacks: list[str]) -> Iterator[tuple[str, Any]]:
    """The victims to look at, by the names of their attacks."""
    if suite == "embedded":
        yield "badnet", EmbeddedScene()
        return
    workshop, seen, runs = Workshop(Path(results) / ".work/models"), set(), plan(load_suite(suite), [SEED])
    sizes = sorted({run.poisoned for run in runs})
    for run in runs:
        label = run.attack.label
        if run.poisoned == sizes[len(sizes) // 2] and label not in seen and (not attacks or label in attacks):
            seen.add(label)
            yield label, workshop.scene(run)


def main() -> None:
    what, suite, results, *attacks = [*sys.argv[1:], *["results"] * (len(sys.argv) < 4)]
    check = {"robustness": robustness, "ablation": ablation, "relapse": relapse}[what]
    out = ROOT / f"results/antidote-{what}-{suite.removeprefix('antidote-')}".removesuffix("-cifar10")
    out.mkdir(parents=True, exist_ok=True)
    for label, scene in scenes(suite, results, attacks):
        print(label)
        record = {
            "suite": suite, "attack": label, "poisoned": len(scene.poison), "seed": SEED,
            "victim": asdict(scene.victim_scores), "reference": asdict(scene.reference_scores),
            "machine": machine(best_device()),
        }  # fmt: skip
        found: dict[str, Any] = {}
        for name, value in check(scene, label):
            found[name] = value
            print(name, flush=True)
            write_json(out / f"{label}.json", record | {"found": found})


if __name__ == "__main__":
    main()
