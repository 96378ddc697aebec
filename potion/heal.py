"""heal(): the one door in front of importances, dampening and search."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion import search as ptn
from potion.batches import Batch, DatasetBatches, shuffled
from potion.cache import cached, content_key
from potion.dampening import dampen
from potion.distributed import (
    agreed,
    check_parallelism,
    failed_together,
    is_sharded,
    local,
    refreshed,
    summed,
    summed_number,
    world,
)
from potion.files import writable_folder
from potion.forward import logits, placement
from potion.importance import KINDS, averaged, summed_importances
from potion.patch import Patch
from potion.progress import Progress
from potion.recorded import recorded
from potion.result import HealResult
from potion.runtime import (
    Precision,
    best_device,
    copied,
    forked_rng,
    generator_for,
    plain_arithmetic,
    set_fastest_layout,
    synchronize,
)
from potion.search import PTN, Outcome
from potion.types import Importances, Status
from potion.validation import check_labels, check_logits, check_weights, known_device, known_indices, whole_number
from potion.version import __version__

__all__ = ["METHODS", "heal"]

METHODS: Final = KINDS
Retain = Literal["rest", "all"]
DEFAULT_SEARCH: Final = PTN()
ENOUGH_SHARE, ENOUGH_BATCHES = 0.3, 24
"""So much of the training set is enough for its importances, the larger of both: results/retain-share, docs/speed.md."""


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
) -> HealResult:
    """Take a backdoor out of a trained classifier, given some of the poisoned training samples.

    Importances of the known poison and of the training set are compared weight by weight; weights that matter far more to
    the poison are dampened, just so many that the known poison stops working (PTN search).

    :param model: any ``nn.Module`` that returns logits (N, K). It is never modified.
    :param train_set: map-style dataset of ``(input, int label)``, still contaminated, with the poisoned labels. Where it
        augments, importances see the augmented samples (FACTS 8), drawn from ``seed``.
    :param known_poison: indices into ``train_set`` of the poison that was found, at least one.
    :param method: ``"xlf"`` (the paper's), ``"lf"`` or ``"ssd"``.
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

    Under ``torch.distributed`` (``torchrun``) the processes share the work, and all get the answer of one: each has the
    whole model and computes importances of its share of the batches, or, where the model is sharded (FSDP2), holds its
    pieces throughout. A sharded model cannot be copied: ``result.model`` is then the model itself, repaired in place, and
    ``result.retain`` and ``result.forget`` are of this process's pieces; ``result.patch`` is of the whole, and undoes it.
    ``cache`` is left alone there.
    """
    check_weights(model)
    check_parallelism(model)
    _check_settings(train_set, unaugmented, method, search, retain, retain_share, exponent)
    batch_size, seed = whole_number("batch_size", batch_size, least=1), whole_number("seed", seed)
    count = len(train_set)  # type: ignore[arg-type]
    known = known_indices(known_poison, count)
    if cache is not None:
        writable_folder(cache)
    me = world()
    with plain_arithmetic(), Progress(progress and me.rank == 0) as bars, _lent(model) as lent:
        working = lent if is_sharded(model) else _working_copy(model, device)
        job = _Job(
            model=working,
            train_set=train_set,
            plain_set=train_set if unaugmented is None else unaugmented,
            known=known,
            rest=_rest(train_set, count, known if retain == "rest" else [], seed, retain_share, batch_size),
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
        if found.outcome.chosen is None:
            patch = Patch.between(model, {}, method=method)
        else:
            chosen = found.outcome.chosen
            patch = dampen(model, found.retain, found.forget, chosen.alpha)
            patch = patch.with_metadata(
                method=method,
                s=chosen.s,
                rho=search.rho,
                known=len(known),
                weights=patch.count,
                versions={"potion": __version__, "torch": torch.__version__},
            )
        repaired = model if is_sharded(model) else copied(model)
        patch.write(repaired)
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
        timings=clock.seconds,
    )


class _Found(NamedTuple):
    outcome: Outcome
    known_accuracy: float
    retain: Importances
    forget: Importances


@dataclass(kw_only=True)
class _Job:
    """Everything from the known poison to the end of the search, on a private copy of the model."""

    model: nn.Module
    train_set: Dataset[Any]
    plain_set: Dataset[Any]
    known: list[int]
    rest: list[int]
    read: Callable[..., DatasetBatches]
    part: tuple[int, int]
    estimator: dict[str, Any]
    search: PTN
    seed: int
    cache: str | os.PathLike[str] | None
    bars: Progress

    def __post_init__(self) -> None:
        self.clock = _Clock(placement(self.model)[0])

    def run(self) -> _Found:
        with self.clock("known poison"), forked_rng(self.seed):
            classes, obeying = _first_look(self.model, self._poison())
            before = agreed(obeying / len(self.known), self.clock.device)
        if before == 0:
            return _Found(Outcome(status=Status.NOT_LEARNED, trace=[], chosen=None), before, {}, {})
        with self.clock("retain importances"):
            retain = self._cached(self.read(self.train_set, self.rest, part=self.part), "training set", classes)
        with self.clock("forget importances"):
            forget = self._estimate(self.read(self.train_set, self.known, part=self.part), "known poison", classes)
        with self.clock("search"), forked_rng(self.seed):
            look = partial(_hits, self.model, list(self._poison()))
            hits = look if is_sharded(self.model) else recorded(look, self.clock.device)
            outcome = ptn.search(
                self.model,
                retain,
                forget,
                lambda: agreed(float(hits()) / len(self.known), self.clock.device),
                before=before,
                share=len(self.known) / len(self.train_set),  # type: ignore[arg-type]
                settings=self.search,
            )
        return _Found(outcome, before, retain, forget)

    def _poison(self) -> DatasetBatches:
        """The known poison, each time the same; not kept on the device while importances need the room."""
        return self.read(self.plain_set, self.known, part=(0, 1))

    def _estimate(self, batches: DatasetBatches, what: str, classes: int) -> Importances:
        with forked_rng(self.seed):
            shown = self.bars.track(batches, f"importances of the {what}", len(batches))
            error: ValueError | None = None
            totals: Importances = {}
            terms = 0
            try:
                totals, terms = summed_importances(self.model, _labels_checked(shown, classes), **self.estimator)
            except ValueError as caught:
                error = caught
            failed_together(error, self.clock.device)
            if self.part[1] > 1:
                summed(totals.values())
                terms = summed_number(terms, self.clock.device)
            return averaged(self.model, totals, terms, self.estimator["kind"])

    def _cached(self, batches: DatasetBatches, what: str, classes: int) -> Importances:
        compute = partial(self._estimate, batches, what, classes)
        if self.cache is None or world().size > 1:  # each process would have to read all of the data for the key
            return compute()
        with forked_rng(self.seed):
            key = content_key(self.model, batches, device=str(self.clock.device), **self.estimator)
        return cached(self.cache, key, compute, self.model)


def _check_settings(
    train_set: Any, unaugmented: Any, method: str, search: Any, retain: str, retain_share: Any, exponent: Any
) -> None:
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    if not isinstance(search, PTN):
        raise TypeError(f"search must be a potion.PTN, got {type(search).__name__}")
    if exponent is not None and (isinstance(exponent, bool) or not isinstance(exponent, float | int)):
        raise TypeError(f"exponent must be a number, got {exponent!r}")
    if retain_share is not None and (
        isinstance(retain_share, bool) or not isinstance(retain_share, float | int) or not 0 < retain_share <= 1
    ):
        raise ValueError(f"retain_share must be above 0 and at most 1, got {retain_share!r}")
    if retain not in get_args(Retain):
        raise ValueError(f"retain must be one of {', '.join(get_args(Retain))}, got {retain!r}")
    if not hasattr(train_set, "__len__") or not hasattr(train_set, "__getitem__"):
        raise TypeError(f"train_set must be a map-style dataset with a length, got {type(train_set).__name__}")
    if unaugmented is not None and len(unaugmented) != len(train_set):
        raise ValueError(f"unaugmented must have the {len(train_set)} samples of train_set, it has {len(unaugmented)}")


@contextmanager
def _lent(model: nn.Module) -> Iterator[nn.Module]:
    """A model that cannot be copied, to be worked on itself: its pieces and modes come back as they were."""
    if not is_sharded(model):
        yield model
        return
    modes = [(module, module.training) for module in model.modules()]
    pieces = {name: local(p).clone() for name, p in model.named_parameters()}
    try:
        yield model.eval()
    finally:
        for module, mode in modes:
            module.training = mode
        refreshed(model)
        for name, p in model.named_parameters():
            local(p).copy_(pieces[name])
        refreshed(model)


def _working_copy(model: nn.Module, device: str | torch.device | None) -> nn.Module:
    """A copy in eval mode on the device asked for; by default where the model is, or a better place than the CPU."""
    wanted = None if device is None else known_device(device)
    working = copied(model).eval()
    places = {p.device for p in model.parameters()}
    if len(places) > 1:
        return working
    if wanted is None:
        (place,) = places
        wanted = best_device() if place.type == "cpu" else place
    working = working.to(wanted)
    set_fastest_layout(working, wanted)
    return working


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


@torch.no_grad()
def _first_look(model: nn.Module, batches: Iterable[Batch]) -> tuple[int, int]:
    """The number of classes and how many samples get their label, after checking outputs and labels."""
    hits = 0
    for inputs, labels in batches:
        outputs = logits(model, inputs)
        check_logits(outputs)
        check_labels(labels, outputs.shape[1])
        hits += int((outputs.argmax(1) == labels.to(outputs.device)).sum())
    return outputs.shape[1], hits


def _labels_checked(batches: Iterable[Batch], classes: int) -> Iterator[Batch]:
    """The batches; when all have passed, their labels are checked, which asks the device once and not for each batch."""
    ends: list[Tensor] = []
    for inputs, labels in batches:
        ends.append(torch.stack([labels.min(), labels.max()]))
        yield inputs, labels
    if ends:  # a process may have no batch at all
        check_labels(torch.cat(ends), classes)


@torch.no_grad()
def _hits(model: nn.Module, batches: Sequence[Batch]) -> Tensor:
    """How many of the samples the model gives the label in the data, which for poison is the attacker's."""
    guesses = [logits(model, inputs).argmax(1) for inputs, _ in batches]
    hits = [(guess == labels.to(guess.device)).sum() for guess, (_, labels) in zip(guesses, batches, strict=True)]
    return torch.stack(hits).sum()


class _Clock:
    """Seconds a phase, read when the device has finished."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        synchronize(self.device)
        self.seconds[phase] = time.perf_counter() - begin
