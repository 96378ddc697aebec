"""The one training loop: victims, retraining and fine-tuning all go through :func:`train`."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import fetch, shuffled, stream
from potion.files import replacing
from potion.fingerprint import add_tensor, fingerprint
from potion.forward import returned_logits
from potion.progress import Progress
from potion.runtime import forked_rng, rng_states, set_layout, set_rng_states
from potion.stale import forget_computed

__all__ = ["ForeignCheckpoint", "Objective", "Recipe", "Stopped", "learning_rate", "train"]

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(inputs, logits, labels) -> the loss of a batch."""

Optimizer = Literal["sgd", "adamw"]
Precision = Literal["float32", "bfloat16", "float16"]


class ForeignCheckpoint(ValueError):  # noqa: N818 (as the file is)
    """The checkpoint file belongs to another training run, or is damaged."""


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """A training was asked to stop before its end; its checkpoint is written."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train. The defaults are those of the CIFAR-10 victims (FACTS 9 and 11), in full precision.

    ``warm_up`` is the share of the iterations over which the rate rises; ``precision`` other than float32 is mixed: the
    weights stay float32. ``frozen_statistics`` trains in eval mode: batch norms keep their statistics, nothing is dropped
    out. Gradients are scaled down to ``largest_norm``. The rate falls by the share ``decay``
    of it to the end.
    """

    iterations: int = 4000
    batch_size: int = 512
    optimizer: Optimizer = "sgd"
    lr: float = 0.025
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warm_up: float = 0.01
    precision: Precision = "float32"
    channels_last: bool = False
    compile: bool = False
    frozen_statistics: bool = False
    largest_norm: float | None = None
    decay: float = 0.8

    def __post_init__(self) -> None:
        for name in ("iterations", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.lr <= 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.warm_up <= 1:
            raise ValueError(f"warm_up must be a share of the iterations in [0, 1], got {self.warm_up}")
        if self.optimizer not in get_args(Optimizer):
            raise ValueError(f"optimizer must be one of {', '.join(get_args(Optimizer))}, got {self.optimizer!r}")
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}")


def learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up over the first 1 % of the iterations, then lr * (1 - 0.8 t / T) by default (FACTS 11)."""
    warm_up = max(1, int(recipe.iterations * recipe.warm_up))
    if step < warm_up:
        return recipe.lr * (step + 1) / warm_up
    return recipe.lr * (1 - recipe.decay * step / recipe.iterations)


def train(
    model: nn.Module,
    dataset: Dataset[Any],
    recipe: Recipe,
    *,
    indices: Sequence[int] | None = None,
    objective: Objective | None = None,
    drop_rest: bool = True,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: bool = True,
    workers: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: int = 500,
    keep_checkpoint: bool = False,
    between: Callable[[int], bool] | None = None,
) -> nn.Module:
    """Train ``model`` in place on the samples ``indices`` of ``dataset`` (default: all); the last iterate is kept.

    :param objective: what to minimise; by default the cross-entropy with the labels in the data.
    :param drop_rest: leave out the short rest of each epoch, so that all batches are of one size; where every sample of
        an epoch is to be seen, do not.
    :param seed: decides the order of the samples and the augmentation; the model brings its own initial weights. Take
        another one than for :func:`potion.data.draw_poison`, or the first epoch begins with the poison.
    :param workers: processes that load samples, for sets that stream from disk.
    :param checkpoint: a file that is written every ``save_every`` iterations; where it is there already, training goes on
        from it, on a CPU to the same bits as without the interruption (unless the dataset itself draws random numbers in
        worker processes). It is removed at the end, or with ``keep_checkpoint`` left there, complete.
    :param between: called between the iterations with how many are done. Where it returns true, training writes its
        checkpoint, if it has one, and raises :class:`Stopped`.
    """
    samples = list(range(len(dataset))) if indices is None else list(indices)  # type: ignore[arg-type]
    if not samples:
        raise ValueError("there is nothing to train on: indices is empty")
    model.to(device)
    model.train(not recipe.frozen_statistics)
    set_layout(model, channels_last=recipe.channels_last)
    run = _Run(model, recipe, torch.device(device), objective or _cross_entropy)
    with forked_rng(seed), torch.enable_grad(), Progress(progress) as bars:
        state = None if checkpoint is None else _Checkpoint(Path(checkpoint), run, dataset, samples, seed)
        first = 0 if state is None else state.resume(run)
        rows = _index_batches(dataset, samples, recipe, seed, first, drop_rest)
        batches = stream(dataset, rows, workers=workers, device=device, seed=seed + first)
        begin = time.perf_counter()
        for step, (inputs, labels) in enumerate(bars.track(batches, "training", recipe.iterations, first), first):
            hits = run.step(step, inputs, labels)
            if bars.shown and step % 20 == 0:
                speed = (step - first + 1) * len(labels) / (time.perf_counter() - begin)
                bars.note(f"training, {100 * int(hits) / len(labels):.0f} % right, {speed:,.0f} images/s")
            stop = between is not None and step + 1 < recipe.iterations and between(step + 1)
            last = keep_checkpoint and step + 1 == recipe.iterations
            if state is not None and (stop or last or (step + 1) % save_every == 0):
                state.save(run, step + 1)
            if stop:
                raise Stopped(f"stopped after {step + 1} of {recipe.iterations} iterations")
    if state is not None and not keep_checkpoint:
        state.path.unlink(missing_ok=True)
    set_layout(model, channels_last=False)
    forget_computed(model)
    model.eval()
    return model


def _cross_entropy(inputs: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, labels)


class _Run:
    """The model, its optimizer and one step of both."""

    def __init__(self, model: nn.Module, recipe: Recipe, device: torch.device, objective: Objective) -> None:
        self.model, self.recipe, self.objective = model, recipe, objective
        self.forward = torch.compile(model) if recipe.compile else model
        if recipe.optimizer == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
                model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
            )
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "float16")
        self._device = device

    def step(self, step: int, inputs: Tensor, labels: Tensor) -> Tensor:
        """One iteration; returns how many of the batch were right, on the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.recipe)
        forget_computed(self.model)
        if self.recipe.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with self._autocast():
            outputs = returned_logits(self.forward(inputs))
            loss = self.objective(inputs, outputs, labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if self.recipe.largest_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.largest_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        right: Tensor = (outputs.argmax(1) == labels).sum()
        return right

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, getattr(torch, self.recipe.precision))


class _Checkpoint:
    """A training run on disk: weights, optimizer, random states, and what they belong to."""

    def __init__(self, path: Path, run: _Run, dataset: Dataset[Any], samples: list[int], seed: int) -> None:
        self.path = path
        with forked_rng(seed):
            some = fetch(dataset, samples[: run.recipe.batch_size])
        digest = hashlib.sha256(json.dumps([asdict(run.recipe), seed, samples, fingerprint(run.model)]).encode())
        for tensor in some:  # another attack or other labels are another run
            add_tensor(digest, tensor)
        self.identity = digest.hexdigest()

    def save(self, run: _Run, step: int) -> None:
        state = {
            "identity": self.identity,
            "step": step,
            "model": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "scaler": run.scaler.state_dict(),
            "rng": rng_states(),
        }
        replacing(self.path, lambda partial: torch.save(state, partial))

    def resume(self, run: _Run) -> int:
        """Load what there is; returns the iteration to go on from."""
        if not self.path.exists():
            return 0
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ForeignCheckpoint(f"{self.path} is not a complete checkpoint; remove it to start anew") from error
        if state["identity"] != self.identity:
            raise ForeignCheckpoint(f"{self.path} is the checkpoint of another training run; remove it to start anew")
        run.model.load_state_dict(state["model"])
        run.optimizer.load_state_dict(state["optimizer"])
        run.scaler.load_state_dict(state["scaler"])
        set_rng_states(state["rng"])
        return int(state["step"])


def _index_batches(
    dataset: Dataset[Any], samples: Sequence[int], recipe: Recipe, seed: int, first: int, drop_rest: bool
) -> Iterator[list[int]]:
    """Index batches from iteration ``first`` on: epochs in an order that only the seed decides."""
    generator = torch.Generator().manual_seed(seed)
    size = min(recipe.batch_size, len(samples))
    step = 0
    while True:
        order = shuffled(dataset, samples, generator)
        for start in range(0, len(order) - size + 1 if drop_rest else len(order), size):
            if step == recipe.iterations:
                return
            if step >= first:
                yield order[start : start + size]
            step += 1
