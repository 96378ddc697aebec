"""Localising a trigger: the smallest thing in a poisoned sample that, transplanted onto others, makes the model obey."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

__all__ = ["DOMAINS", "Domain", "Trigger", "localise"]


@dataclass(frozen=True)
class Domain:
    """A way of describing images in which a trigger may be small: ``entries`` that a mask can take from another image.

    ``cost`` is the number of values that one entry holds in each channel.
    """

    name: str
    shape: Callable[[tuple[int, int]], tuple[int, int]]
    mixed: Callable[[Tensor, Tensor, Tensor], Tensor]
    cost: int


def _mixed_pixels(images: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    return torch.lerp(images, source, mask)


def _mixed_waves(images: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    theirs, ours = torch.fft.rfft2(source), torch.fft.rfft2(images)
    return torch.fft.irfft2(ours + mask * (theirs - ours), s=images.shape[-2:])


DOMAINS: Final = {
    "pixels": Domain("pixels", lambda size: size, _mixed_pixels, cost=1),
    "waves": Domain("waves", lambda size: (size[0], size[1] // 2 + 1), _mixed_waves, cost=2),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Trigger:
    """Entries ``mask`` of the image ``source`` in a domain; put onto other images they make the model say ``target``.

    ``success`` is how often; ``control`` how often the same entries of ordinary images of the target class do.
    ``limits`` are the smallest and largest value that an input takes.
    """

    domain: str
    mask: Tensor
    source: Tensor
    target: int
    success: float
    control: float
    limits: tuple[float, float]

    @property
    def size(self) -> int:
        """How many entries it takes."""
        return int(self.mask.sum())

    @property
    def cost(self) -> int:
        """The length of its description: values in a channel."""
        return self.size * DOMAINS[self.domain].cost

    @property
    def gain(self) -> float:
        """How much more often it works than chance would have it."""
        return self.success - self.control

    def onto(self, images: Tensor) -> Tensor:
        """The images with the trigger in its place."""
        mask = self.mask.to(images)
        return DOMAINS[self.domain].mixed(images, self.source.to(images), mask).clamp(*self.limits)

    def moved(self, generator: torch.Generator) -> Trigger:
        """The trigger of a patch somewhere else: mirrored half of the time, or anywhere. A wave stays where it is."""
        if self.domain != "pixels":
            return self
        mask, source = self.mask, self.source
        if float(torch.rand((), generator=generator)) < 0.5:
            dims = [d for d in (-1, -2) if float(torch.rand((), generator=generator)) < 0.5]
            mask, source = mask.flip(dims), source.flip(dims)
        else:
            rows, columns = torch.nonzero(mask.any(1)).flatten().tolist(), torch.nonzero(mask.any(0)).flatten().tolist()
            height, width = mask.shape
            down = _draw(-rows[0], height - 1 - rows[-1], generator)
            right = _draw(-columns[0], width - 1 - columns[-1], generator)
            mask, source = mask.roll((down, right), (0, 1)), source.roll((down, right), (1, 2))
        return Trigger(
            domain=self.domain,
            mask=mask,
            source=source,
            target=self.target,
            success=self.success,
            control=self.control,
            limits=self.limits,
        )


def _draw(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


@dataclass(frozen=True, kw_only=True)
class Search:
    """How masks are searched for; the same for every domain, image size and model."""

    steps: int = 300
    images: int = 32
    at_once: int = 512
    lr: float = 0.1
    looked_at: int = 128


def localise(
    model: nn.Module,
    sources: Tensor,
    targets: Sequence[int],
    trusted: Tensor,
    ordinary: dict[int, Tensor],
    search: Search,
    *,
    seed: int = 0,
) -> list[Trigger]:
    """For each of ``sources`` the best trigger that is in it, in the domain in which that is smallest.

    ``trusted`` are images of other classes than ``targets``; ``ordinary`` are images that have the target as their label.
    Half of the trusted images are for the search, the other half for the look at what it found.
    """
    limits = float(trusted.min()), float(trusted.max())
    for_search, for_look = trusted[: len(trusted) // 2], trusted[len(trusted) // 2 :]
    generator = torch.Generator(trusted.device).manual_seed(seed)
    best: list[Trigger] = []
    wanted = torch.as_tensor(list(targets), device=trusted.device)
    chunk = max(1, search.at_once // search.images)
    for some, some_targets in zip(sources.split(chunk), wanted.split(chunk), strict=True):
        found: list[list[Trigger]] = [[] for _ in some]
        for domain in DOMAINS.values():
            masks = _soft_masks(model, domain, some, some_targets, for_search, search, limits, generator)
            for row, (mask, source, target) in enumerate(zip(masks, some, some_targets.tolist(), strict=True)):
                trigger = _hardened(
                    model, domain, mask, source, target, for_look, ordinary[target], search, limits, generator
                )
                found[row].append(trigger)
        best += [_shortest(each) for each in found]
    return best


def _shortest(triggers: Sequence[Trigger]) -> Trigger:
    """Of those that work about as well as the best one, the one with the shortest description."""
    enough = 0.8 * max(trigger.gain for trigger in triggers)
    return min((trigger for trigger in triggers if trigger.gain >= enough), key=lambda trigger: trigger.cost)


def _soft_masks(
    model: nn.Module,
    domain: Domain,
    sources: Tensor,
    targets: Tensor,
    trusted: Tensor,
    search: Search,
    limits: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    r"""Masks in [0, 1] that minimise :math:`CE(P(x \oplus_m z), t) + \lambda |m|`, all of them in one batch.

    They begin with all of z; :math:`\lambda` rises while the transplant succeeds and falls where it does not.
    """
    count, height, width = len(sources), *sources.shape[-2:]
    raw = torch.full((count, *domain.shape((height, width))), 3.0, device=sources.device, requires_grad=True)
    weight = torch.ones(count, device=sources.device)
    optimizer = torch.optim.Adam([raw], lr=search.lr)
    labels, each = targets.repeat_interleave(search.images), sources.repeat_interleave(search.images, 0)
    for _ in range(search.steps):
        rows = torch.randint(len(trusted), (len(each),), generator=generator, device=trusted.device)
        masks = raw.sigmoid()
        shown = domain.mixed(trusted[rows], each, masks.repeat_interleave(search.images, 0)[:, None])
        outputs = model(shown.clamp(*limits))
        losses = cross_entropy(outputs, labels, reduction="none").view(count, -1).mean(1)
        (gradient,) = torch.autograd.grad((losses + weight * masks.mean((1, 2))).sum(), raw)
        raw.grad = gradient
        optimizer.step()
        works = (outputs.argmax(1) == labels).view(count, -1).float().mean(1) > 0.9
        weight = torch.where(works, weight * 1.1, weight / 1.1)
    return raw.detach().sigmoid()


@torch.no_grad()
def _hardened(
    model: nn.Module,
    domain: Domain,
    mask: Tensor,
    source: Tensor,
    target: int,
    trusted: Tensor,
    ordinary: Tensor,
    search: Search,
    limits: tuple[float, float],
    generator: torch.Generator,
) -> Trigger:
    """The smallest set of the mask's largest entries that works almost as well as any, beyond what chance would do."""
    order = mask.flatten().argsort(descending=True)
    rows = torch.randint(len(trusted), (search.looked_at,), generator=generator, device=trusted.device)
    others = torch.randint(len(ordinary), (search.looked_at,), generator=generator, device=ordinary.device)
    images, controls = trusted[rows], ordinary[others]

    def works(size: int) -> tuple[float, float]:
        hard = _first(order, size, mask.shape).to(images)
        shown = torch.cat([domain.mixed(images, source, hard), domain.mixed(images, controls, hard)]).clamp(*limits)
        hits = (model(shown).argmax(1) == target).float()
        return float(hits[: len(images)].mean()), float(hits[len(images) :].mean())

    sizes = _sizes(mask.numel())
    rates = [works(size) for size in sizes]
    best = max(success - control for success, control in rates)
    size, (success, control) = next(
        (size, rate) for size, rate in zip(sizes, rates, strict=True) if rate[0] - rate[1] >= 0.9 * best
    )
    return Trigger(
        domain=domain.name,
        mask=_first(order, size, mask.shape),
        source=source,
        target=target,
        success=success,
        control=control,
        limits=limits,
    )


def _first(order: Tensor, size: int, shape: torch.Size) -> Tensor:
    mask = torch.zeros(order.numel(), dtype=torch.bool, device=order.device)
    mask[order[:size]] = True
    return mask.view(shape)


def _sizes(count: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 11, 16, ... up to half of the entries: more of them is another image, not a trigger."""
    steps = range(2 * int(math.log2(max(2, count // 2))) + 1)
    return sorted({round(2 ** (step / 2)) for step in steps})
