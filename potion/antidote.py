"""Antidote: localise the trigger in the known poison, then teach the model the truth about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.batches import Batch, DatasetBatches, fetch
from potion.runtime import copied, forked_rng, generator_for, seed_for
from potion.training import Recipe, train
from potion.trigger import Search, Trigger, localise

VERBOSE = True


@dataclass(frozen=True, kw_only=True)
class Settings:
    sources: int = 16
    pool: int = 2048
    held_out: float = 0.1
    transplants: float = 0.2
    quarantine_epochs: float = 1.5
    immunise_epochs: float = 4.0
    admitted: float = 0.6
    lr: float = 0.01
    batch_size: int = 512
    frozen: bool = True
    search: Search = field(default_factory=Search)
    rounds: int = 2
    relabel: bool = True
    moved: bool = True
    quantile: float = 0.995


class Medicine(Dataset[Any]):
    """The training set with ``labels`` that are trusted, and a transplanted trigger on a share of other classes' images."""

    def __init__(self, data, labels, triggers, settings, device, seed):
        self.data, self.labels, self.triggers, self.settings, self.device = data, labels, triggers, settings, device
        self.targets = torch.tensor(sorted({t.target for t in triggers}), device=device)
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.data)

    def get_batch(self, rows: Tensor) -> Batch:
        inputs, _ = fetch(self.data, rows.tolist(), self.device)
        labels = self.labels[rows].to(inputs.device)
        if not self.triggers:
            return inputs, labels
        inputs = inputs.clone()
        free = ~torch.isin(labels, self.targets)
        chosen = torch.nonzero(
            free & (torch.rand(len(rows), device=inputs.device) < self.settings.transplants)
        ).flatten()
        parts = chosen.chunk(8)
        for k, part in enumerate(parts):
            if len(part) == 0:
                continue
            trigger = self.triggers[int(torch.randint(len(self.triggers), (), generator=self.generator))]
            if self.settings.moved and k % 2:
                trigger = trigger.moved(self.generator)
            inputs[part] = trigger.onto(inputs[part])
        return inputs, labels


def antidote(
    model,
    train_set,
    plain_set,
    known,
    labels,
    settings=Settings(),
    *,
    device,
    seed=0,
    truth=None,
    score=None,
    say=print,
):
    """Prototype: returns the immunised model and a dictionary of what happened. ``truth``: true poison, for printing."""
    clock = {}
    begin = time.perf_counter()

    def lap(name):
        nonlocal begin
        if device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        clock[name] = round(now - begin, 2)
        begin = now

    labels = labels.cpu()
    victim = copied(model).to(device).eval()
    for p in victim.parameters():
        p.requires_grad_(False)
    known_set = set(known)
    generator = generator_for("antidote", seed)
    targets = sorted({int(labels[i]) for i in known})
    suspicious = torch.isin(labels, torch.tensor(targets))
    trusted = torch.nonzero(~suspicious).flatten()
    trusted = trusted[torch.randperm(len(trusted), generator=generator)]
    held = trusted[: int(settings.held_out * len(trusted))].tolist()
    trusted = trusted[len(held) :].tolist()
    suspects = [i for i in torch.nonzero(suspicious).flatten().tolist() if i not in known_set]

    # 1. localise
    sources, _ = fetch(plain_set, list(known)[: 4 * settings.sources], device)
    with torch.no_grad():
        wanted = labels[list(known)[: 4 * settings.sources]].to(device)
        fires = victim(sources).argmax(1) == wanted
    sources, wanted = sources[fires][: settings.sources], wanted[fires][: settings.sources]
    if len(sources) == 0:
        say("none of the known fires")
        return victim, {"triggers": []}
    pool, _ = fetch(plain_set, held[: settings.pool], device)
    ordinary = {}
    for t in targets:
        mine = [i for i in suspects if int(labels[i]) == t]
        ordinary[t] = fetch(plain_set, mine[:512], device)[0]
    found = localise(victim, sources, wanted.tolist(), pool, ordinary, settings.search, seed=seed)
    lap("localise")
    if VERBOSE:
        for t in found[:4]:
            say(f"   {t.domain} size {t.size}/{t.mask.numel()} success {t.success:.2f} control {t.control:.2f}")
    triggers = [t for t in found if t.gain >= 0.5 * max(f.gain for f in found)]

    def train_on(indices, labels, epochs, name, triggers):
        student = copied(victim)
        for p in student.parameters():
            p.requires_grad_(True)
        medicine = Medicine(train_set, labels, triggers, settings, device, seed_for(name, seed))
        its = max(50, round(epochs * len(indices) / settings.batch_size))
        recipe = Recipe(
            iterations=its,
            batch_size=settings.batch_size,
            lr=settings.lr,
            warm_up=0.1,
            frozen_statistics=settings.frozen,
            largest_norm=1.0,
            channels_last=True,
            precision="bfloat16" if device.type == "cuda" else "float32",
        )
        train(
            student, medicine, recipe, indices=indices, seed=seed_for(name, seed) % 2**31, device=device, progress=False
        )
        for p in student.parameters():
            p.requires_grad_(False)
        return student

    @torch.no_grad()
    def log_probs(m, indices):
        out = [m(x).float().log_softmax(1) for x, _ in DatasetBatches(plain_set, indices, 1024, device=device)]
        return torch.cat(out).cpu()

    tensor = torch.as_tensor(suspects)
    mine = labels[tensor]
    is_poison = torch.zeros(len(labels), dtype=torch.bool)
    if truth is not None:
        is_poison[torch.as_tensor(sorted(truth))] = True
    at_p, held_p = log_probs(victim, suspects), log_probs(victim, held)
    # 2. quarantine
    filt = train_on(trusted, labels, settings.quarantine_epochs, "quarantine", triggers)
    lap("quarantine")
    p_t = log_probs(filt, suspects).gather(1, mine[:, None])[:, 0]
    top = p_t.argsort(descending=True)[: int(settings.admitted * len(suspects))]
    admitted = tensor[top].tolist()
    if VERBOSE and score:
        say(
            f"   quarantine: {int(is_poison[tensor[top]].sum())} of {int(is_poison[tensor].sum())} poison in the top {len(top)}; {score(filt)}"
        )
    relabelled: dict[int, int] = {}
    held_labels = labels[torch.as_tensor(held)]
    for k in range(settings.rounds):
        new_labels = labels.clone()
        for i, y in relabelled.items():
            new_labels[i] = y
        healed = train_on(
            trusted + admitted + list(relabelled), new_labels, settings.immunise_epochs, f"immunise {k}", triggers
        )
        lap(f"immunise {k}")
        at_h, held_h = log_probs(healed, suspects), log_probs(healed, held)
        drop = (at_p - at_h).gather(1, mine[:, None])[:, 0]
        null = (held_p - held_h).gather(1, held_labels[:, None])[:, 0]
        limit = torch.quantile(null, settings.quantile)
        flagged = (drop > limit) & (at_h.argmax(1) != mine) & (at_p.argmax(1) == mine)
        admitted = tensor[~flagged & (at_h.argmax(1) == mine)].tolist()
        sure = flagged & (at_h.max(1).values.exp() > 0.5)
        relabelled = dict(zip(tensor[sure].tolist(), at_h.argmax(1)[sure].tolist())) if settings.relabel else {}
        if VERBOSE and score:
            tp = int(is_poison[tensor[flagged]].sum())
            say(
                f"   round {k}: flagged {int(flagged.sum())}, right {tp} of {int(is_poison[tensor].sum())}, limit {limit:.2f}; admitted {len(admitted)} with {int(is_poison[torch.as_tensor(admitted)].sum())} poison; held-out {float((held_p.argmax(1) == held_labels).float().mean()):.4f} -> {float((held_h.argmax(1) == held_labels).float().mean()):.4f}; {score(healed)}"
            )
    return healed, {"triggers": found, "clock": clock}
