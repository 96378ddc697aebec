"""Localising a trigger: the smallest thing in a sample that, transplanted onto others, makes the model say its label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, autocast, nn
from torch.nn.functional import cross_entropy

from potion.antidote.trigger import DOMAINS, SOUGHT, Domain, Trigger, extremes
from potion.forward import logits

__all__ = ["Search", "Surroundings", "cut_anew", "localise"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How masks are searched for; the same for every domain, image size and model.

    Each of ``steps`` tries every mask on ``images`` images, ``at_once`` in one batch; what was found is then looked at on
    ``looked_at`` others. Masks do not hang on the last digits, so the model may be asked in ``bfloat16``; the antidote does
    so where that is faster.
    """

    steps: int = 100
    images: int = 32
    at_once: int = 512
    lr: float = 0.15
    goal: float = 0.9
    looked_at: int = 64
    bfloat16: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "images", "at_once", "looked_at"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 < self.goal < 1:
            raise ValueError(f"goal must be a share between 0 and 1, got {self.goal}")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Images to try on: ``trusted`` ones of classes that no poison claims, and ``ordinary`` ones by the label they have.

    Some of the ordinary ones may be poison that nobody has found yet.
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
    half, limits = max(1, len(around.trusted) // 2), extremes(around.trusted, sources)
    found: list[list[Trigger]] = [[] for _ in sources]
    drafts: list[dict[str, Tensor]] = [{} for _ in sources]
    rows = range(len(sources))
    size = max(1, search.at_once // search.images)
    for domain in (DOMAINS[name] for name in domains):
        for chunk in (rows[begin : begin + size] for begin in rows[::size]):
            some = [labels[row] for row in chunk]
            masks = _soft_masks(
                model, domain, sources[list(chunk)], some, around.trusted[:half], limits, search, generator
            )
            for row, mask in zip(chunk, masks, strict=True):
                drafts[row][domain.name] = mask
                found[row].append(
                    _cut(model, domain, mask, sources[row], labels[row], limits, around, search, generator)
                )
    return [replace(_shortest(each), drafts=mine) for each, mine in zip(found, drafts, strict=True)]


def cut_anew(
    model: nn.Module, triggers: Sequence[Trigger], around: Surroundings, search: Search, *, seed: int = 0
) -> list[Trigger]:
    """The triggers as they are next to other ordinary images: of the same masks, perhaps more, fewer or other entries.

    Where half of the images with a label are poison, a patch does not gain much by comparison with them, and less than what
    is in one image alone. So who has found the poison should look again.
    """
    found = []
    for trigger in triggers:
        generator = torch.Generator(trigger.source.device).manual_seed(seed)
        cut = [
            _cut(model, DOMAINS[name], mask, trigger.source, trigger.target, trigger.limits, around, search, generator)
            for name, mask in trigger.drafts.items()
        ]
        found.append(replace(_shortest(cut), drafts=trigger.drafts))
    return found


def _shortest(triggers: Sequence[Trigger]) -> Trigger:
    """Of those that work about as well as the best one, the one with the shortest description."""
    enough = _almost(max(trigger.gain for trigger in triggers), 0.8)
    return min((trigger for trigger in triggers if trigger.gain >= enough), key=lambda trigger: trigger.cost)


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
            outputs = _said(model, shown, search)
            losses = cross_entropy(outputs, wanted, reduction="none").view(count, each).mean(1)
            (raw.grad,) = torch.autograd.grad((losses + weight * masks.mean((1, 2))).sum(), raw)
            optimizer.step()
            works = (outputs.argmax(1) == wanted).view(count, each).float().mean(1) > search.goal
            weight = torch.where(works, weight * 1.15, weight / 1.15)
    return raw.detach().sigmoid()


@torch.no_grad()
def _cut(
    model: nn.Module,
    domain: Domain,
    mask: Tensor,
    source: Tensor,
    label: int,
    limits: tuple[float, float],
    around: Surroundings,
    search: Search,
    generator: torch.Generator,
) -> Trigger:
    """The fewest of the mask's largest entries that gain almost as much as any number of them.

    What they gain is measured against the same entries of ordinary images of that label.
    """
    images = _some(around.trusted[len(around.trusted) // 2 :], search.looked_at, generator)
    controls = _some(around.ordinary[label], search.looked_at, generator)
    order = mask.flatten().argsort(descending=True)
    sizes = _sizes(mask.numel())
    entries = torch.stack([_first(order, size, mask.shape) for size in sizes]).to(images)
    both = torch.stack([source.expand_as(controls), controls])  # (what is taken from, image, ...)
    rates: list[tuple[float, float]] = []
    for some in entries.split(max(1, search.at_once // both[:, :, 0, 0, 0].numel())):
        shown = domain.mixed(images, both, some[:, None, None, None]).clamp(*limits)
        said = torch.cat([_said(model, part, search).argmax(1) for part in shown.flatten(0, 2).split(search.at_once)])
        hits = (said == label).view(shown.shape[:3]).float().mean(2)
        rates += [(success, control) for success, control in hits.tolist()]
    enough = _almost(max(success - control for success, control in rates), 0.9)
    place = next(k for k, (success, control) in enumerate(rates) if success - control >= enough)
    return Trigger(
        domain=domain.name,
        mask=_first(order, sizes[place], mask.shape),
        source=source,
        target=label,
        success=rates[place][0],
        control=rates[place][1],
        limits=limits,
    )


def _said(model: nn.Module, images: Tensor, search: Search) -> Tensor:
    with autocast(images.device.type, torch.bfloat16, enabled=search.bfloat16):
        return logits(model, images).float()


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
    return sorted({round(2 ** (step / 2)) for step in range(int(2 * math.log2(max(2, count // 2))) + 1)})
