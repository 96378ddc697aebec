"""What the antidote found and did, and whether it worked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from torch import Tensor

from potion.antidote.evidence import Evidence
from potion.antidote.trigger import Trigger
from potion.types import Status

__all__ = ["MISFIT", "SLACK", "Effect", "Treatment"]

MISNAMED: Final = 0.5
"""At most so many of the known samples may be clean ones, which rightly keep their label."""
CROWDED: Final = 1.25
"""A label that so many times as many samples keep as any trusted label has may still be that of hidden poison."""
KNOWN_BY: Final = 0.5
"""A model that gives fewer of the trusted samples their label may have been trained on other labels."""
MISFIT: Final = (
    "the labels that they have in the data: its classes may be numbered otherwise than these, or images may have reached it "
    "otherwise in training"
)
SLACK: Final = 1e-9
"""Counts that are exactly at a limit are not above it, however they are rounded."""

Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What an attacker's label gets before and after, as fractions.

    ``known`` are the known samples with that label, ``obeys`` held-out trusted images with what was found of its trigger on
    them, ``kin`` samples that joined the known ones, where there are any. ``clear`` is whether what was found is clearly a
    trigger.
    """

    known: Pair
    obeys: Pair | None = None
    kin: Pair | None = None
    clear: bool = True

    def power(self) -> tuple[float, float, str]:
        """By what the label is judged: its trigger, its kin where there is no clear one, or the known samples."""
        if self.kin is not None and not self.clear:
            return *self.kin, "samples that are like the known ones"
        if self.obeys is not None:
            return *self.obeys, "images with the transplanted trigger"
        return *self.known, "known samples"

    def left(self, rho: float) -> str | None:
        """What is left of the attack, if it is too much.

        What was localised may be but a part of the trigger, so half of the known samples must have stopped obeying as well.
        """
        for before, after, what, share in ((*self.power(), rho), (*self.known, "known samples", MISNAMED)):
            if after > share * before + SLACK:
                return f"{after:.1%} of {what}"
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Treatment:
    """What the antidote found and did.

    ``evidence`` is why there is thought to be a trigger at all. ``triggers`` are the localised ones, strongest first;
    ``patterns`` what poison adds to images on average, where that works. ``effects`` are what each attacker's label still
    gets, ``trusted`` is the accuracy on held-out trusted images, before and after. ``corrected`` are the
    quarantined samples that were found to be poison, with the class that they belong to.
    ``carriers`` is how many keep their label in mixtures with other images as only poison does, 0
    where that says nothing. ``keeping`` is how many samples with an attacker's label still get it from the healed model,
    ``most`` how many samples the most common trusted label has. ``examples`` are a few trusted images, to show a trigger on.
    """

    evidence: Evidence
    triggers: list[Trigger]
    patterns: list[Trigger]
    effects: dict[int, Effect]
    trusted: Pair
    corrected: dict[int, int] = field(repr=False)
    carriers: int
    keeping: dict[int, int]
    most: int
    examples: Tensor = field(repr=False)

    @property
    def localised(self) -> bool:
        """Whether a trigger was found that is clearly one."""
        return bool(self.triggers) and self.triggers[0].strong

    @property
    def known(self) -> Pair:
        """The share of the known samples that obey, of the label of which most still do."""
        return max((effect.known for effect in self.effects.values()), key=_most_left)

    @property
    def obeys(self) -> Pair:
        """How often the trigger works, that of the label of which most is left."""
        return max((effect.obeys or (0.0, 0.0) for effect in self.effects.values()), key=_most_left)

    @property
    def kin(self) -> Pair | None:
        """The share of those that joined the known samples that obey, of the label of which most still do."""
        return max((effect.kin for effect in self.effects.values() if effect.kin), key=_most_left, default=None)

    def judged(self, rho: float, allowed: float) -> tuple[Status, list[str]]:
        """Whether it worked, for each attacker's label: at most ``rho`` of the trigger's power left; and at most ``allowed``
        points of accuracy lost.
        """
        several = len(self.effects) > 1
        notes = []
        for label, effect in self.effects.items():
            if not effect.clear:
                where = f" with label {label}" if several else ""
                notes.append(
                    f"no small trigger could be localised in the known samples{where}, so how much of it is left can only "
                    "be seen on images that have it"
                )
        for label, effect in self.effects.items():
            if (left := effect.left(rho)) is not None:
                way_out = " (if the known samples with it were named by mistake, leave them out)" if several else ""
                return Status.EXHAUSTED, [*notes, f"{left} still get the attacker's label {label}{way_out}"]
        if 100 * (self.trusted[0] - self.trusted[1]) > allowed:
            return Status.GUARDED, [*notes, f"accuracy on trusted samples fell to {self.trusted[1]:.1%}"]
        if self.trusted[0] < KNOWN_BY:
            notes.append(f"before, the model gave only {self.trusted[0]:.1%} of the trusted samples {MISFIT}")
        return Status.HEALED, [*notes, *self._obeying(rho), *self._crowded()]

    def _obeying(self, rho: float) -> list[str]:
        """Where more of the known samples still obey than a trigger may that is gone, though some of them rightly do."""
        return [
            f"{effect.known[1]:.0%} of the known samples with label {label} still get it: some may have it by right, or be "
            "clean ones named by mistake; else a part of the trigger was not found, and still works"
            for label, effect in self.effects.items()
            if effect.known[1] > rho * effect.known[0] + SLACK
        ]

    def _crowded(self) -> list[str]:
        """Where so many samples keep an attacker's label that some will be poison that was not found.

        It takes no more than a note: who has such labels by nature cannot be told from here.
        """
        return [
            f"{count:,} samples keep the label {label}, and no trusted label has more than {self.most:,}; if that label is "
            "not more common by nature, poison with another shape or place of the trigger was not found, and still works"
            for label, count in self.keeping.items()
            if count > CROWDED * self.most
        ]

    @property
    def worst(self) -> tuple[int, tuple[float, float, str]]:
        """The attacker's label of which most is left, and by what it is judged."""
        powers = {label: effect.power() for label, effect in self.effects.items()}
        return max(powers.items(), key=lambda item: _most_left(item[1][:2]))

    def told(self) -> str:
        """What was done, in one sentence; of the attacker's label of which most is left."""
        label, (before, after, what) = self.worst
        return (
            f"{self._form(label)}; of {what} {after:.1%} get the attacker's label, not {before:.1%}; "
            f"{len(self.corrected)} more poisoned samples were found; accuracy on trusted samples went from "
            f"{self.trusted[0]:.1%} to {self.trusted[1]:.1%}."
        )

    def _form(self, label: int) -> str:
        """What the trigger of a label looks like."""
        for trigger in self.triggers:
            if trigger.target == label:
                return f"the trigger was found in {trigger.size} {trigger.domain}"
        if any(pattern.target == label for pattern in self.patterns):
            return "the trigger was found in what poison adds to images on average"
        return "the trigger has no small form"

    def to_dict(self) -> dict[str, Any]:
        """Without the images, ready for JSON."""
        return {
            "evidence": self.evidence.to_dict(),
            "localised": self.localised,
            "triggers": [trigger.to_dict() for trigger in self.triggers],
            "patterns": [pattern.to_dict() for pattern in self.patterns],
            "known": list(self.known),
            "obeys": list(self.obeys),
            "kin": None if self.kin is None else list(self.kin),
            "power": list(self.worst[1][:2]),
            "judged_by": self.worst[1][2],
            "effects": {str(label): asdict(effect) for label, effect in self.effects.items()},
            "trusted": list(self.trusted),
            "carriers": self.carriers,
            "keeping": {str(label): count for label, count in self.keeping.items()},
            "most": self.most,
            "corrected": {str(index): label for index, label in self.corrected.items()},
        }

    def pictures(self) -> list[tuple[str, str, Tensor]]:
        """Titles, captions and pictures, uint8 (C, H, W): the strongest trigger and what poison adds on average."""
        shown: list[tuple[str, str, Tensor]] = []
        for trigger in self.triggers[:1]:
            grey, *others = trigger.shown(self.examples)
            shown.append(("Poisoned sample", "in which the trigger was localised", trigger.drawn(trigger.source)))
            shown.append(("The trigger", f"{trigger.size} {trigger.domain} of it, on grey", grey))
            works = f"the poisoned model obeys in {trigger.success:.0%} of cases"
            shown += [("Transplant", works, picture) for picture in others]
        for pattern in self.patterns[:1]:
            grey, *others = pattern.shown(self.examples)
            shown.append(("What poison adds", "on average, made stronger, on grey", grey))
            works = f"the poisoned model obeys in {pattern.success:.0%} of cases"
            shown += [("Added", works, picture) for picture in others]
        return shown


def _most_left(pair: Pair) -> Pair:
    before, after = pair
    return after, before
