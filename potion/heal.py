"""heal(): the one door in front of dampening and antidote."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, get_args

import torch
from torch import nn
from torch.utils.data import Dataset

from potion.antidote import Antidote
from potion.antidote.margins import margins
from potion.antidote.ward import attackers_labels
from potion.batches import DatasetBatches, labels_of, shuffled
from potion.dampening import dampen
from potion.distributed import check_parallelism, is_sharded, world
from potion.files import writable_folder
from potion.forward import placement
from potion.immunise import immunised
from potion.importance import KINDS
from potion.neutralise import Found, Neutralisation
from potion.patch import Patch
from potion.progress import Progress
from potion.result import HealResult
from potion.runtime import Precision, copied, forked_rng, generator_for, plain_arithmetic
from potion.search import PTN
from potion.types import Status
from potion.validation import check_same_samples, check_train_set, check_weights, known_indices, whole_number
from potion.version import versions
from potion.working import lent, working_copy

__all__ = ["METHODS", "heal"]

METHODS: Final = (*KINDS, "antidote")
Retain = Literal["rest", "all"]
DEFAULT_SEARCH: Final = PTN()
DEFAULT_ANTIDOTE: Final = Antidote()
ENOUGH_SHARE, ENOUGH_BATCHES = 0.3, 24
"""So much of the training set is enough for its importances, the larger of both: results/retain-share, docs/speed.md."""
WATCHED: Final = 2048
"""So many trusted samples are watched for damage."""
ALLOWED: Final = 2.0
"""So many points of trusted accuracy may XLF cost in the antidote's place, if nobody has said otherwise."""


def heal(
    model: nn.Module,
    train_set: Dataset[Any],
    known_poison: Iterable[int],
    method: str = "xlf",
    search: PTN = DEFAULT_SEARCH,
    *,
    batch_size: int = 512,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = True,
    unaugmented: Dataset[Any] | None = None,
    retain: Retain = "rest",
    retain_share: float | None = None,
    exponent: float | None = None,
    per_sample: bool = False,
    precision: Precision | None = None,
    cache: str | os.PathLike[str] | None = None,
    workers: int = 0,
    antidote: Antidote = DEFAULT_ANTIDOTE,
) -> HealResult:
    """Take a backdoor out of a trained classifier, given some of the poisoned training samples.

    The paper's methods compare importances of the known poison and of the training set weight by weight; weights that
    matter far more to the poison are dampened, just so many that the known poison stops working (PTN search). The antidote
    finds the trigger in the known poison and teaches the model the truth about it (:mod:`potion.antidote`).

    :param model: any ``nn.Module`` that returns logits (N, K). It is never modified.
    :param train_set: map-style dataset of ``(input, int label)``, still contaminated, with the poisoned labels. Where it
        augments, importances see the augmented samples (FACTS 8), drawn from ``seed``.
    :param known_poison: indices into ``train_set`` of the poison that was found, at least one.
    :param method: ``"xlf"`` (the paper's), ``"lf"``, ``"ssd"`` or ``"antidote"``, for images (C, H, W). Where an antidote
        does not work, XLF is tried in its place, guarded, and the result says so.
    :param search: the settings of the search.
    :param batch_size: samples a batch; importances depend on it (FACTS 7), the published ones used 512.
    :param device: where to compute; by itself CUDA, MPS or the CPU. A model spread over several devices stays there.
    :param seed: decides the order of the training set, its augmentation and everything else that is random.
    :param progress: show progress bars, where a person is watching.
    :param unaugmented: the same samples as ``train_set`` without augmentation; the stopping test reads the known poison
        from it. Default: ``train_set`` as it is, drawn once.
    :param retain: ``"rest"`` takes the retain importances over the training set without the known poison (FACTS 6),
        ``"all"`` over all of it (Alg. 1 as printed), so that one cached pass serves any set of known poison.
    :param retain_share: estimate the retain importances on a random part of these samples, at least one batch; by default
        on 30 %, but no fewer than 24 batches, which repaired as well as all of them (speed.md). 1 is the paper's.
    :param exponent: another exponent w of the output norm for xlf and lf.
    :param per_sample: exact per-sample importances, several times slower.
    :param precision: compute importances in ``"float32"`` to the last bit, ``"tf32"`` or ``"bfloat16"`` (autocast); by
        default as torch is set up, which on a GPU means TF32 convolutions. The search always runs as torch is set up.
    :param cache: a folder in which importances of the training set are kept and found again, by content.
    :param workers: processes that load samples, for datasets that decode files.
    :param antidote: the settings of the antidote.

    Under ``torch.distributed`` (``torchrun``) the processes share the work, and all get the answer of one: each has the
    whole model and computes importances of its share of the batches, or, where the model is sharded (FSDP2), holds its
    pieces throughout. A sharded model cannot be copied: ``result.model`` is then the model itself, repaired in place, and
    ``result.retain`` and ``result.forget`` are of this process's pieces; ``result.patch`` is of the whole, and undoes it.
    ``cache`` is left alone there.
    """
    check_weights(model)
    check_parallelism(model)
    _check_settings(train_set, unaugmented, method, search, antidote, retain, retain_share, exponent)
    batch_size, seed = whole_number("batch_size", batch_size, least=1), whole_number("seed", seed)
    count = len(train_set)  # type: ignore[arg-type]
    known = known_indices(known_poison, count)
    if cache is not None:
        writable_folder(cache)
    plain_set = train_set if unaugmented is None else unaugmented
    check_same_samples(train_set, plain_set, known, seed)
    notes: list[str] = []
    spent: dict[str, float] = {}
    if method == "antidote":
        with plain_arithmetic():
            result = immunised(
                model, train_set, plain_set, known, antidote, search, batch_size=batch_size, device=device, seed=seed,
                progress=progress, workers=workers,
            )  # fmt: skip
        if result.status in (Status.HEALED, Status.NOT_FOUND):
            return result
        notes = [f"the antidote did not take ({'; '.join(result.notes)}), so XLF + PTN was tried in its place"]
        spent = {f"antidote, {phase}": seconds for phase, seconds in result.timings.items()}
        del result  # and the copy of the model in it
        method, search = "xlf", replace(search, guard=ALLOWED if search.guard is None else search.guard)
    me = world()
    with plain_arithmetic(), Progress(progress and me.rank == 0) as bars, lent(model) as own:
        working = own if is_sharded(model) else working_copy(model, device, plain_set)
        job = Neutralisation(
            model=working,
            train_set=train_set,
            plain_set=plain_set,
            known=known,
            rest=_rest(train_set, count, known if retain == "rest" else [], seed, retain_share, batch_size),
            watched=_trusted(train_set, known, seed) if search.guard is not None or search.stop == "trusted" else [],
            read=partial(
                DatasetBatches, batch_size=batch_size, workers=workers, device=placement(working)[0], seed=seed
            ),
            part=(0, 1) if is_sharded(model) else me,
            estimator={"kind": method, "exponent": exponent, "per_sample": per_sample, "precision": precision},
            search=search,
            seed=seed,
            cache=cache,
            bars=bars,
        )
        found = job.run()
    clock = job.clock
    del job, working  # this copy of the model goes before another one is made
    with clock("patch"):
        patch = _dampened(model, found, method, len(known), search)
        repaired = model if is_sharded(model) else copied(model)
        patch.write(repaired)
    if notes and patch.count:
        notes.append(
            _left_of_the_label(model, repaired, train_set, plain_set, known, batch_size, device, seed, workers)
        )
    return HealResult(
        status=found.outcome.status,
        model=repaired,
        patch=patch,
        trace=found.outcome.trace,
        chosen=found.outcome.chosen,
        known_accuracy=found.known_accuracy,
        method=method,
        known=len(known),
        search=search,
        retain=found.retain,
        forget=found.forget,
        timings=spent | clock.seconds,
        known_poison=known,
        notes=notes,
        trusted_accuracy=found.trusted_accuracy,
    )


def _left_of_the_label(
    model: nn.Module,
    repaired: nn.Module,
    train_set: Dataset[Any],
    plain_set: Dataset[Any],
    known: list[int],
    batch_size: int,
    device: str | torch.device | None,
    seed: int,
    workers: int,
) -> str:
    """What no guard sees, in one sentence: how many other samples with the attacker's label keep it."""
    labels = labels_of(train_set)
    claimed = torch.isin(labels, attackers_labels(labels[known]))
    claimed[known] = False
    others = torch.nonzero(claimed).flatten().tolist()[:WATCHED]
    shares = []
    for each in (model, repaired):
        with forked_rng(seed):
            _, guesses = margins(working_copy(each, device, plain_set), plain_set, others, batch_size, workers)
        shares.append(float((guesses == labels[others]).float().mean()) if others else 0.0)
    return f"of the other samples with that label {shares[0]:.0%} got it before and {shares[1]:.0%} get it now"


def _dampened(model: nn.Module, found: Found, method: str, known: int, search: PTN) -> Patch:
    """What the search chose, as a patch; an empty one where it chose nothing."""
    chosen = found.outcome.chosen
    if chosen is None:
        return Patch.between(model, {}, method=method)
    patch = dampen(model, found.retain, found.forget, chosen.alpha)
    return patch.with_metadata(
        method=method, s=chosen.s, rho=search.rho, known=known, weights=patch.count, **versions()
    )


def _check_settings(
    train_set: Any,
    unaugmented: Any,
    method: str,
    search: Any,
    antidote: Any,
    retain: str,
    retain_share: Any,
    exponent: Any,
) -> None:
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    if not isinstance(search, PTN):
        raise TypeError(f"search must be a potion.PTN, got {type(search).__name__}")
    if not isinstance(antidote, Antidote):
        raise TypeError(f"antidote must be a potion.Antidote, got {type(antidote).__name__}")
    if exponent is not None and (isinstance(exponent, bool) or not isinstance(exponent, float | int)):
        raise TypeError(f"exponent must be a number, got {exponent!r}")
    if retain_share is not None and (
        isinstance(retain_share, bool) or not isinstance(retain_share, float | int) or not 0 < retain_share <= 1
    ):
        raise ValueError(f"retain_share must be above 0 and at most 1, got {retain_share!r}")
    if retain not in get_args(Retain):
        raise ValueError(f"retain must be one of {', '.join(get_args(Retain))}, got {retain!r}")
    check_train_set(train_set)
    if unaugmented is not None and len(unaugmented) != len(train_set):
        raise ValueError(f"unaugmented must have the {len(train_set)} samples of train_set, it has {len(unaugmented)}")


def _rest(
    train_set: Dataset[Any], count: int, left_out: Sequence[int], seed: int, share: float | None, batch_size: int
) -> list[int]:
    """All samples but a few in random order: a batch's mean gradient wants a mixed batch, whatever the set's order.

    A share of them is the first ones in that order, in whole batches.
    """
    samples = shuffled(train_set, sorted(set(range(count)) - set(left_out)), generator_for("importances", seed))
    if share == 1:
        return samples
    least, share = (ENOUGH_BATCHES, ENOUGH_SHARE) if share is None else (1, share)
    return samples[: max(least, round(share * len(samples) / batch_size)) * batch_size]


def _trusted(train_set: Dataset[Any], known: Sequence[int], seed: int) -> list[int]:
    """Some samples whose label is no attacker's: they are clean, and their labels are right."""
    labels = labels_of(train_set)
    claimed = torch.isin(labels, attackers_labels(labels[list(known)]))
    claimed[list(known)] = True
    trusted = torch.nonzero(~claimed).flatten()
    if not len(trusted):
        raise ValueError("the known poison has every label there is: no samples are left that could be trusted")
    return trusted[torch.randperm(len(trusted), generator=generator_for("trusted", seed))[:WATCHED]].tolist()
