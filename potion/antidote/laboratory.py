"""The laboratory: what the samples in a ward tell about the trigger."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from potion.antidote.localise import Search, Surroundings, cut_anew, localise
from potion.antidote.pattern import pattern
from potion.antidote.trigger import SOUGHT, Trigger
from potion.antidote.ward import Ward
from potion.forward import logits
from potion.runtime import seed_for

__all__ = ["looked_again", "patterns_in", "triggers_in"]

VIEWS: Final = 8
"""So many times is a sample looked at as training shows it, where it does not fire as it is."""
AVERAGED: Final = 4096
"""So many trusted samples say what images look like without a trigger."""
TRIED: Final = 256
"""On so many images is tried whether what poison adds on average works."""
ORDINARY: Final = 16
"""Fewer ordinary images of a label do not show what its images have in common: trusted ones fill up."""


def triggers_in(ward: Ward, indices: Sequence[int], count: int, domains: Sequence[str] = ()) -> list[Trigger]:
    """The triggers in the first ``count`` samples that fire, as many of each label; strongest first.

    In all domains or in some.
    """
    if not len(indices):
        return []
    by_label = [[index for index in indices if ward.labels[index] == label] for label in ward.claims(indices).unique()]
    each = math.ceil(count / len(by_label))
    firing = [_firing(ward, some[: 4 * each], each) for some in by_label]
    sources, labels = map(torch.cat, zip(*firing, strict=True))
    found = localise(
        ward.victim,
        sources,
        labels.tolist(),
        _around(ward, labels.tolist(), ward.quarantined),
        _search(ward),
        seed=seed_for("masks", ward.seed),
        domains=domains or SOUGHT,
    )
    return _strongest_first(found)


def looked_again(ward: Ward, triggers: Sequence[Trigger], poison: Tensor) -> list[Trigger]:
    """The triggers next to samples with their label that are clean, as far as that is known by now; strongest first."""
    around = _around(ward, [trigger.target for trigger in triggers], ward.named(~poison))
    return _strongest_first(cut_anew(ward.victim, triggers, around, _search(ward), seed=seed_for("cuts", ward.seed)))


def patterns_in(ward: Ward, corrected: Mapping[int, int]) -> list[Trigger]:
    """What the poison of each label adds to images on average, where that makes the patient obey."""
    found = []
    for label in ward.claims(list(corrected)).unique().tolist():
        mine = {index: guess for index, guess in corrected.items() if ward.labels[index] == label}
        found.append(
            pattern(
                ward.victim, ward.plain_set, mine, label, ward.held_out[:AVERAGED], ward.labels, ward.pool[:TRIED],
                batch_size=ward.batch_size, workers=ward.workers,
            )
        )  # fmt: skip
    return [each for each in found if each is not None]


@torch.no_grad()
def _firing(ward: Ward, indices: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
    """Views of samples in which the patient obeys: as they are, or as training shows them; of none, as they are."""
    views: list[Tensor] = []
    labels: list[Tensor] = []
    waiting = list(indices)
    for dataset in (ward.plain_set, *[ward.train_set] * VIEWS):
        if not waiting or len(views) >= count:
            break
        seen, own = ward.fetched(dataset, waiting)
        fires = torch.cat([logits(ward.victim, part).argmax(1) for part in seen.split(2 * ward.batch_size)]) == own
        views += seen[fires].unbind()
        labels += own[fires].unbind()
        waiting = [index for index, fired in zip(waiting, fires.tolist(), strict=True) if not fired]
    if not views:
        return ward.fetched(ward.plain_set, list(indices)[:count])
    return torch.stack(views[:count]), torch.stack(labels[:count])


def _around(ward: Ward, labels: Collection[int], among: Sequence[int]) -> Surroundings:
    """Images to try triggers for ``labels`` on, with ordinary ones ``among`` some, filled up with trusted ones."""
    ordinary = {}
    for label in set(labels):
        mine = [index for index in among if ward.labels[index] == label][: ward.settings.pool]
        mine += ward.held_out[: max(0, ORDINARY - len(mine))]
        ordinary[label] = ward.fetched(ward.plain_set, mine)[0]
    return Surroundings(trusted=ward.pool, ordinary=ordinary)


def _search(ward: Ward) -> Search:
    """The settings of the search, which takes no more images at once than the model is usually given, as it takes them."""
    search = ward.settings.search
    return replace(search, at_once=min(search.at_once, max(search.images, 2 * ward.batch_size)), bfloat16=ward.bfloat16)


def _strongest_first(triggers: Sequence[Trigger]) -> list[Trigger]:
    return sorted(triggers, key=lambda trigger: -trigger.strength)
