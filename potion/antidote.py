"""Antidote: find the trigger in the known poison, find the poison that nobody found, teach the model the truth about both.

The known poison names the attacker's labels, so every sample with another label is clean and rightly labelled: *trusted*.

1. *Localise* the trigger in the known samples that fire: the smallest thing in them that makes the model obey on trusted
   images (:mod:`potion.localise`).
2. *Quarantine* all samples with an attacker's label. A copy of the model is fine-tuned on trusted samples alone, some with a
   transplanted trigger and their true label. Under it, undiscovered poison falls out of place among the samples that share
   its label; what does is named by its true class, and tells more about the trigger.
3. *Immunise* the model on trusted samples, the quarantined ones that look like their label, the corrected poison, and
   transplants. The immunised model tells poison from the rest better than the quarantine did: look again, and once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potion.runtime import Clock
from potion.trigger import Trigger
from potion.types import Status
from potion.ward import Antidote, NothingFound, Ward, out_of_place

__all__ = ["Antidote", "NothingFound", "Treatment", "treat"]

STRONG: Final = 0.15
"""A trigger of this strength is taken for one. Set after a look at about a dozen masks, not yet measured."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Treatment:
    """What the antidote found and did.

    ``triggers`` are the localised ones, strongest first. The rest are fractions before and after, on held-out trusted
    images: ``obeys`` with a transplanted trigger, ``trusted`` accuracy without. ``corrected`` are the quarantined samples
    that were found to be poison, with the class that they belong to; ``known`` is the share of the known ones that obey.
    """

    triggers: list[Trigger]
    known: tuple[float, float]
    obeys: tuple[float, float]
    trusted: tuple[float, float]
    corrected: dict[int, int]

    @property
    def localised(self) -> bool:
        """Whether a trigger was found that is clearly one."""
        return bool(self.triggers) and self.triggers[0].strength >= STRONG

    def judged(self, rho: float, allowed: float) -> tuple[Status, list[str]]:
        """Whether it worked: at most ``rho`` of the trigger's power left, at most ``allowed`` points of accuracy lost."""
        notes = [] if self.localised else ["no small trigger could be localised in the known samples"]
        before, after = self.obeys if self.triggers else self.known
        if after > rho * before:
            what = "images with the transplanted trigger" if self.triggers else "known samples"
            return Status.EXHAUSTED, [*notes, f"{after:.1%} of {what} still get the attacker's label"]
        if 100 * (self.trusted[0] - self.trusted[1]) > allowed:
            return Status.GUARDED, [*notes, f"accuracy on trusted samples fell to {self.trusted[1]:.1%}"]
        return Status.HEALED, notes

    def told(self) -> str:
        """What was done, in one sentence."""
        where = f"{self.triggers[0].size} {self.triggers[0].domain}" if self.triggers else "nothing small"
        return (
            f"the trigger was found in {where}; on held-out images it works in {self.obeys[1]:.1%} of cases, not "
            f"{self.obeys[0]:.1%}; {len(self.corrected)} more poisoned samples were found; accuracy on trusted samples went "
            f"from {self.trusted[0]:.1%} to {self.trusted[1]:.1%}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Without the images, ready for JSON."""
        return {
            "localised": self.localised,
            "triggers": [trigger.to_dict() for trigger in self.triggers],
            "known": list(self.known),
            "obeys": list(self.obeys),
            "trusted": list(self.trusted),
            "corrected": {str(index): label for index, label in self.corrected.items()},
        }


def treat(
    victim: nn.Module,
    train_set: Dataset[Any],
    plain_set: Dataset[Any],
    labels: Tensor,
    known: Sequence[int],
    settings: Antidote,
    *,
    clock: Clock,
    batch_size: int,
    seed: int,
    progress: bool,
) -> tuple[nn.Module, Treatment]:
    """The immunised model; ``victim`` must be on the clock's device, in eval mode and frozen.

    Raises :class:`NothingFound`.
    """
    with clock("sorting"):
        ward = Ward(victim, train_set, plain_set, labels, known, settings, clock.device, batch_size, seed, progress)
    with clock("localising"):
        triggers = ward.localised(known, settings.sources)
    with clock("quarantine"):
        strong = [trigger for trigger in triggers if trigger.strength >= STRONG]
        filtered = ward.taught(ward.trusted, {}, strong, settings.quarantine_epochs, "quarantine")
        placed, guesses = ward.margins(filtered, ward.quarantined)
        outside = out_of_place(placed, ward.claims(ward.quarantined))
        if not strong:
            _expect_poison(ward, filtered, placed, known)
        corrected = ward.corrections(outside & ward.obeying, guesses)
    with clock("localising more"):
        if len(known) < settings.more:
            lowest = [index for index in ward.by(placed) if index in corrected]
            triggers += ward.localised(lowest, settings.more, domains={trigger.domain for trigger in triggers})
        triggers = _useful(triggers)
    with clock("immunising"):
        admitted = ward.by(-placed)[: round(settings.admitted * len(placed))]
        admitted = [index for index in admitted if index not in corrected]
        for number in range(settings.rounds):
            samples = [*ward.trusted, *admitted, *corrected]
            healed = ward.taught(samples, corrected, triggers, settings.epochs, f"round {number}")
            poison, right, guesses = ward.verdict(healed)
            corrected, admitted = ward.corrections(poison, guesses), ward.named(right)
    with clock("judging"):
        treatment = Treatment(
            triggers=triggers,
            known=(ward.obedience(victim, known), ward.obedience(healed, known)),
            obeys=(ward.obeys(victim, triggers), ward.obeys(healed, triggers)),
            trusted=(ward.obedience(victim, ward.held_out), ward.obedience(healed, ward.held_out)),
            corrected=corrected,
        )
    return healed, treatment


def _expect_poison(ward: Ward, filtered: nn.Module, placed: Tensor, known: Sequence[int]) -> None:
    """Without a strong trigger: stop where the known samples look like all others with their label.

    The filter must not have been taught about them: then anything would look out of place.
    """
    theirs, _ = ward.margins(filtered, known)
    together = torch.cat([placed, theirs])
    outside = out_of_place(together, torch.cat([ward.claims(ward.quarantined), ward.claims(known)]))[-len(known) :]
    if 2 * int(outside.sum()) < len(known):
        raise NothingFound(
            "no trigger was found: the known samples look like the others with their label, and no small part of them "
            "makes the model say it of other images"
        )


def _useful(triggers: Sequence[Trigger]) -> list[Trigger]:
    """The triggers that do at least half of what the strongest one does, strongest first."""
    ordered = sorted(triggers, key=lambda trigger: -trigger.strength)
    return [trigger for trigger in ordered if trigger.gain > 0 and 2 * trigger.strength >= ordered[0].strength]
