"""What the core costs, as ratios taken in one run on the machine at hand (best times, for machines are noisy).

    python scripts/bench_core.py            (or: make bench-core)

1. importance pass / plain forward+backward pass over the same batches         aim: at most 1.10
2. one step of the search / inference on the known poison                      aim: at most 1.3
3. peak memory of heal over that of a training step, in units of the weights   aim: at most 3
4. import potion / import torch                                                aim: at most 1.2
"""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potion
from potion.batches import DatasetBatches, fetch
from potion.embedded import Embedded, embedded_model
from potion.search import search
from potion.types import Look

REPEATS = 7


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def interleaved(one: Callable[[], object], two: Callable[[], object]) -> float:
    """The best time of one() over the best time of two(), taken in turns after a warm-up."""
    one(), two()
    times = [(seconds(one), seconds(two)) for _ in range(REPEATS)]
    return min(first for first, _ in times) / min(second for _, second in times)


def importance_ratio(kind: str) -> float:
    scenario, model = Embedded(), embedded_model("victim")
    batches = list(DatasetBatches(scenario.train_set(), range(1024), 512))

    def plain() -> None:
        for inputs, labels in batches:
            model.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(inputs), labels).backward()

    return interleaved(lambda: potion.importances(model, batches, kind), plain)


def step_ratio(known: int) -> float:
    scenario, model = Embedded(), embedded_model("victim")
    retain = potion.importances(model, DatasetBatches(scenario.train_set(), range(2048), 512))
    inputs, labels = fetch(scenario.train_set().plain(), scenario.known(known))
    forget = potion.importances(model, [(inputs, labels)])

    @torch.no_grad()
    def look(at: nn.Module) -> Look:
        return Look(float((at(inputs).argmax(1) == labels).float().mean()))

    steps = 20

    def walk() -> None:
        working = copy.deepcopy(model)
        settings = potion.PTN(rho=0.0, max_steps=steps)
        found = search(
            working, retain, forget, lambda: look(working), before=Look(1.0), share=known / 10_000, settings=settings
        )
        assert len(found.trace) == steps

    def inference() -> None:
        for _ in range(steps):
            look(model)

    return interleaved(walk, inference)


def wide_model() -> nn.Module:
    """Ten million weights and hardly any activations: here memory is weights."""
    torch.manual_seed(0)
    hidden = [layer for _ in range(10) for layer in (nn.Linear(1000, 1000), nn.ReLU())]
    return nn.Sequential(nn.Linear(32, 1000), nn.ReLU(), *hidden, nn.Linear(1000, 10))


def peak_of_training() -> None:
    model, inputs, labels = wide_model(), torch.randn(64, 32), torch.randint(0, 10, (64,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def peak_of_heal() -> None:
    model, inputs = wide_model(), torch.randn(64, 32)
    labels = model(inputs).argmax(1)
    settings = potion.PTN(rho=0.0, max_steps=60)
    potion.heal(model, TensorDataset(inputs, labels), range(4), search=settings, batch_size=16, progress=False)


def peak_bytes(call: str, module: str = "bench_core") -> int:
    """Peak memory of a fresh process that makes the call; Linux (getrusage would count the parent's pages too)."""
    code = f"import {module}; {module}.{call}; print(open('/proc/self/status').read())"
    output = subprocess.run([sys.executable, "-c", code], cwd=sys.path[0], check=True, capture_output=True, text=True)
    line = next(line for line in output.stdout.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def memory_ratio() -> float:
    weights = sum(p.numel() * p.element_size() for p in wide_model().parameters())
    return (peak_bytes("peak_of_heal()") - peak_bytes("peak_of_training()")) / weights


def import_ratio() -> float:
    def run(module: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    return interleaved(run("potion"), run("torch"))


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, best of {REPEATS} each, taken in turns")
    for kind in ("xlf", "lf", "ssd"):
        print(f"importance pass ({kind}) / forward+backward    {importance_ratio(kind):.2f}   aim <= 1.10")
    for known in (100, 20):
        print(f"search step / inference, {known:>3} known          {step_ratio(known):.2f}   aim <= 1.3")
    print(f"peak memory over a training step, in weights   {memory_ratio():.2f}   aim <= 3")
    print(f"import potion / import torch                   {import_ratio():.2f}   aim <= 1.2")


if __name__ == "__main__":
    main()
