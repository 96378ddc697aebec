"""Localising a trigger: the smallest thing in a sample that, transplanted onto others, makes the model say its label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import torch
from torch import Tensor, autocast, nn
from torch.nn.functional import cross_entropy

from potion.forward import logits
from potion.trigger import DOMAINS, SOUGHT, Domain, Trigger, extremes

__all__ = ["Search", "Surroundings", "compared", "localise"]

CLEAN: Final = 0.25
"""At least so many of the samples with an attacker's label are clean."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How masks are searched for; the same for every domain, image size and model.

    Each of ``steps`` tries every mask on ``images`` images, ``at_once`` in one batch; what was found is then looked at on
    ``looked_at`` others, next to the same entries of ``controls`` ordinary samples on ``tried_on`` images each.
    """

    steps: int = 100
    images: int = 32
    at_once: int = 512
    lr: float = 0.15
    goal: float = 0.9
    looked_at: int = 64
    controls: int = 16
    tried_on: int = 8


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Images to try on: ``trusted`` ones of classes that no poison claims, and ``ordinary`` ones by the label they have.

    Some of the ordinary ones are poison that nobody found.
    """

    trusted: Tensor
    ordinary: Mapping[int, Tensor]


def localise(
    model: nn.Module,
    sources: Tensor,
    labels: Sequence[int],
    around: Surroundings,
    search: Search,
    *,
    seed: int = 0,
    domains: Iterable[str] = SOUGHT,
) -> list[Trigger]:
    """For each of ``sources`` what makes the model say its label, in the domain in which that is smallest.

    Half of the trusted images are for the search, the other half for the look at what it found. ``model`` must be in eval
    mode, with frozen weights.
    """
    generator = torch.Generator(sources.device).manual_seed(seed)
    half, limits = len(around.trusted) // 2, extremes(around.trusted, sources)
    found: list[list[tuple[float, Trigger]]] = [[] for _ in sources]
    rows = range(len(sources))
    size = max(1, search.at_once // search.images)
    for domain in (DOMAINS[name] for name in domains):
        for chunk in (rows[begin : begin + size] for begin in rows[::size]):
            some = [labels[row] for row in chunk]
            masks = _soft_masks(
                model, domain, sources[list(chunk)], some, around.trusted[:half], limits, search, generator
            )
            for row, mask in zip(chunk, masks, strict=True):
                looks = _Looks.drawn(around.trusted[half:], around.ordinary[labels[row]], search, generator)
                found[row].append(_hard(model, domain, mask, sources[row], labels[row], looks, limits, search.at_once))
    return [_shortest(each) for each in found]


def _shortest(found: Sequence[tuple[float, Trigger]]) -> Trigger:
    """Of those that work about as well as the best one, the one with the shortest description."""
    enough = _almost(max(gain for gain, _ in found), 0.8)
    return min((trigger for gain, trigger in found if gain >= enough), key=lambda trigger: trigger.cost)


def _soft_masks(
    model: nn.Module,
    domain: Domain,
    sources: Tensor,
    labels: Sequence[int],
    trusted: Tensor,
    limits: tuple[float, float],
    search: Search,
    generator: torch.Generator,
) -> Tensor:
    r"""Masks in [0, 1] that minimise :math:`CE(P(x \oplus_m z), t) + \lambda |m|`, all of them in one batch.

    They begin with almost all of z; :math:`\lambda` rises while the transplant succeeds and falls where it does not.
    """
    count, each = len(sources), search.images
    raw = torch.full((count, *domain.shape(*sources.shape[-2:])), 3.0, device=sources.device, requires_grad=True)
    weight = torch.ones(count, device=sources.device)
    optimizer = torch.optim.Adam([raw], lr=search.lr)
    wanted = torch.as_tensor(labels, device=sources.device).repeat_interleave(each)
    repeated = sources.repeat_interleave(each, 0)
    with torch.enable_grad():
        for _ in range(search.steps):
            masks = raw.sigmoid()
            images = _some(trusted, len(repeated), generator)
            shown = domain.mixed(images, repeated, masks.repeat_interleave(each, 0)[:, None]).clamp(*limits)
            with autocast(shown.device.type, torch.bfloat16, enabled=shown.device.type == "cuda"):
                outputs = logits(model, shown).float()
            losses = cross_entropy(outputs, wanted, reduction="none").view(count, each).mean(1)
            (raw.grad,) = torch.autograd.grad((losses + weight * masks.mean((1, 2))).sum(), raw)
            optimizer.step()
            works = (outputs.argmax(1) == wanted).view(count, each).float().mean(1) > search.goal
            weight = torch.where(works, weight * 1.15, weight / 1.15)
    return raw.detach().sigmoid()


class _Rates(NamedTuple):
    """How often entries work: those of a sample, of ordinary ones with its label, and of the quarter that does least."""

    success: float
    control: float
    least: float

    @property
    def gain(self) -> float:
        """By how much more often than in clean samples. A mean would count poison among the ordinary ones against the
        trigger: where half of a class has it, a patch gains less by that than some wave which is in one sample alone.
        """
        return self.success - self.least


@dataclass(frozen=True, kw_only=True)
class _Looks:
    """What a mask is looked at with: ``images`` for its own sample, and ``controls`` with ``backgrounds`` for each."""

    images: Tensor
    controls: Tensor
    backgrounds: Tensor

    @classmethod
    def drawn(cls, trusted: Tensor, ordinary: Tensor, search: Search, generator: torch.Generator) -> _Looks:
        """At random."""
        backgrounds = _some(trusted, search.controls * search.tried_on, generator)
        return cls(
            images=_some(trusted, search.looked_at, generator),
            controls=_some(ordinary, search.controls, generator),
            backgrounds=backgrounds.unflatten(0, (search.controls, search.tried_on)),
        )

    def rates(
        self, model: nn.Module, domain: Domain, entries: Tensor, source: Tensor, label: int, limits: tuple[float, float]
    ) -> list[_Rates]:
        """What the entries of the sample and those of the controls do, for each of some masks."""
        own = domain.mixed(self.images, source, entries[:, None, None])
        theirs = domain.mixed(self.backgrounds, self.controls[:, None], entries[:, None, None, None])
        shown = torch.cat([own, theirs.flatten(1, 2)], 1).clamp(*limits)
        hits = (logits(model, shown.flatten(0, 1)).argmax(1) == label).view(shown.shape[:2]).float()
        success, control = hits.split([own.shape[1], theirs.shape[1] * theirs.shape[2]], 1)
        least = control.view(theirs.shape[:3]).mean(2).quantile(CLEAN, 1)
        return [_Rates(*each) for each in torch.stack([success.mean(1), control.mean(1), least], 1).tolist()]

    def __len__(self) -> int:
        return len(self.images) + self.backgrounds[:, :, 0, 0, 0].numel()


@torch.no_grad()
def _hard(
    model: nn.Module,
    domain: Domain,
    mask: Tensor,
    source: Tensor,
    label: int,
    looks: _Looks,
    limits: tuple[float, float],
    at_once: int,
) -> tuple[float, Trigger]:
    """The fewest of the mask's largest entries that gain almost as much as any number of them, and what they gain."""
    order = mask.flatten().argsort(descending=True)
    sizes = _sizes(mask.numel())
    entries = torch.stack([_first(order, size, mask.shape) for size in sizes]).to(source)
    rates: list[_Rates] = []
    for some in entries.split(max(1, at_once // len(looks))):
        rates += looks.rates(model, domain, some, source, label, limits)
    enough = _almost(max(each.gain for each in rates), 0.9)
    place = next(k for k, each in enumerate(rates) if each.gain >= enough)
    return rates[place].gain, Trigger(
        domain=domain.name,
        mask=_first(order, sizes[place], mask.shape),
        source=source,
        target=label,
        success=rates[place].success,
        control=rates[place].control,
        limits=limits,
    )


@torch.no_grad()
def compared(model: nn.Module, trigger: Trigger, images: Tensor, ordinary: Tensor) -> Trigger:
    """The trigger, with how often its entries of ``ordinary`` images work, each on one of ``images``."""
    pairs = min(len(images), len(ordinary))
    mask = trigger.mask.to(images)
    shown = DOMAINS[trigger.domain].mixed(images[:pairs], ordinary[:pairs], mask).clamp(*trigger.limits)
    return replace(trigger, control=float((logits(model, shown).argmax(1) == trigger.target).float().mean()))


def _almost(best: float, share: float) -> float:
    """A share of the best gain; of a loss, which no share of it reaches, all of it."""
    return min(best, share * best)


def _some(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return images[torch.randint(len(images), (count,), generator=generator, device=images.device)]


def _first(order: Tensor, size: int, shape: torch.Size) -> Tensor:
    mask = torch.zeros(order.numel(), dtype=torch.bool, device=order.device)
    mask[order[:size]] = True
    return mask.view(shape)


def _sizes(count: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 11, 16, ... up to half of the entries: more of them is another image, not a trigger."""
    return sorted({round(2 ** (step / 2)) for step in range(2 * int(math.log2(max(2, count // 2))) + 1)})
