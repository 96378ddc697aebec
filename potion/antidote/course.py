"""The course of treatment: localise, quarantine, immunise, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from potion.antidote.carriers import Carriers
from potion.antidote.evidence import weighed
from potion.antidote.kin import family
from potion.antidote.laboratory import looked_again, patterns_in, triggers_in
from potion.antidote.likeness import resembling, surely_clean
from potion.antidote.treatment import MISFIT, Effect, Treatment
from potion.antidote.trigger import SOUGHT, Trigger
from potion.antidote.verdict import Verdict, carriers_in
from potion.antidote.ward import NothingFound, Ward
from potion.runtime import Clock

__all__ = ["first_lesson", "treat"]


def treat(ward: Ward, clock: Clock) -> tuple[nn.Module, Treatment]:
    """The immunised model, and what was done; raises :class:`NothingFound`."""
    settings, victim = ward.settings, ward.victim
    with clock("localising"):
        before = ward.accuracy(victim, ward.held_out)
        if before < ward.commonest:
            raise NothingFound(f"the model gives only {before:.1%} of the samples that can be trusted {MISFIT}")
        triggers = triggers_in(ward, ward.known, settings.sources)
    with clock("quarantine"):
        filtered = first_lesson(ward, triggers)
        evidence = weighed(ward, triggers, filtered)
        if not evidence.convincing and settings.kin:
            evidence = replace(evidence, kin=family(ward, filtered))
        if not evidence.convincing:
            raise NothingFound(f"no trigger was found: {evidence.told()}")
        if evidence.kin is not None:
            ward = replace(ward, adopted=evidence.kin.members)
            triggers = triggers_in(ward, ward.known, settings.sources)
            filtered = first_lesson(ward, triggers)
        found = _diagnosed(ward, triggers, Verdict.by(filtered, ward))
    with clock("immunising"):
        verdict, carriers = found.verdict, found.carriers
        corrected, admitted = found.corrected, verdict.better(carriers)
        for number in range(settings.rounds):
            healed = ward.taught([*ward.trusted, *admitted], corrected, found.doses, settings.epochs, f"round {number}")
            verdict = Verdict.by(healed, ward)
            corrected, admitted = verdict.taught(carriers) | ward.truth(healed), verdict.taken_back(carriers)
    with clock("judging"):
        kin = sorted(set(ward.adopted) - set(ward.listed))
        treatment = Treatment(
            evidence=evidence,
            triggers=_useful(found.triggers),
            patterns=found.patterns,
            effects=_effects(ward, healed, found, kin),
            trusted=(before, ward.accuracy(healed, ward.held_out)),
            examples=ward.examples(3),
            corrected=verdict.named(carriers) | ward.rejected(healed, kin),
            carriers=int(carriers.carries.sum()),
            keeping=ward.keeping(healed),
            most=ward.most,
        )
    return healed, treatment


@dataclass(frozen=True, kw_only=True, eq=False)
class _Diagnosis:
    """What the quarantine has found: who is poison, with the class that belongs on it, and what is known of the trigger."""

    verdict: Verdict
    carriers: Carriers
    corrected: dict[int, int]
    triggers: list[Trigger]
    patterns: list[Trigger]

    @property
    def doses(self) -> list[Trigger]:
        """What is transplanted to immunise."""
        return _doses(_useful(self.triggers), self.patterns)


def _effects(ward: Ward, healed: nn.Module, found: _Diagnosis, kin: list[int]) -> dict[int, Effect]:
    """What each attacker's label gets from the patient and from the healed model."""
    models = ward.victim, healed
    known, alike = ([ward.obedience(model, some) for model in models] for some in (ward.given, kin))
    obeys = [ward.obeys(model, found.doses) for model in models]
    clear = {trigger.target for trigger in found.triggers if trigger.strong} | {each.target for each in found.patterns}

    def pair(seen: list[dict[int, float]], label: int) -> tuple[float, float] | None:
        before, after = seen
        return (before[label], after[label]) if label in before else None

    return {
        label: Effect(
            known=(before, known[1][label]),
            obeys=pair(obeys, label),
            kin=pair(alike, label),
            clear=label in clear,
        )
        for label, before in known[0].items()
    }


def _diagnosed(ward: Ward, triggers: list[Trigger], verdict: Verdict) -> _Diagnosis:
    """The quarantines, each shown what is surely clean; ``verdict`` is that of the first lesson, which was shown nothing.

    So it says who carries a trigger, but not who is clean: the hard samples may have been forgotten.
    """
    settings, carriers = ward.settings, carriers_in(ward, verdict.poison).only(resembling(ward))
    corrected: dict[int, int] = {}
    patterns: list[Trigger] = []
    lesson = _lesson_of(triggers)
    for number in range(1, settings.quarantines + 1):
        clean = surely_clean(ward, carriers, None if number == 1 else verdict)
        purpose = f"quarantine {number}"
        filtered = ward.taught([*ward.trusted, *clean], corrected, lesson, settings.quarantine_epochs, purpose)
        verdict = Verdict.by(filtered, ward, shown=clean)
        corrected = verdict.taught(carriers) | ward.truth(filtered)
        patterns = patterns_in(ward, corrected)
        if number == 1:
            if ward.fewest < settings.more:
                strong = {trigger.domain for trigger in triggers if trigger.strong}
                domains = [name for name in SOUGHT if name in strong]
                others = verdict.suspicious(carriers, corrected)
                triggers = triggers + triggers_in(ward, others, settings.more, domains=domains)
            triggers = looked_again(ward, triggers, verdict.credible(carriers) | carriers.carries)
        lesson = _doses(_lesson_of(triggers), patterns)
    return _Diagnosis(verdict=verdict, carriers=carriers, corrected=corrected, triggers=triggers, patterns=patterns)


def first_lesson(ward: Ward, triggers: list[Trigger]) -> nn.Module:
    """A copy of the patient that has learned from trusted samples alone, some with the trigger as far as it is known."""
    return ward.taught(ward.trusted, {}, _lesson_of(triggers), ward.settings.quarantine_epochs, "quarantine 0")


def _lesson_of(triggers: Sequence[Trigger]) -> list[Trigger]:
    """What the first quarantine teaches to overlook: what is clearly a trigger, or everything of labels where nothing is."""
    clear = {trigger.target for trigger in triggers if trigger.strong}
    return [trigger for trigger in triggers if trigger.strong or trigger.target not in clear]


def _doses(triggers: list[Trigger], patterns: list[Trigger]) -> list[Trigger]:
    """What is transplanted once others have told more of it: masks as they are and wider, and patterns in equal parts."""
    masks = [each for trigger in triggers for each in (trigger, trigger.wider())]
    times = max(1, round(len(masks) / max(1, len(patterns))))
    return [*masks, *patterns * times]


def _useful(triggers: Sequence[Trigger]) -> list[Trigger]:
    """The triggers to immunise against, strongest first: clear ones, of labels that have any, that do at least half of what
    the strongest one of their label does.

    A mask that is no clear trigger is much of an image. To be taught that it means nothing costs accuracy.
    """
    ordered = sorted(_lesson_of(triggers), key=lambda trigger: -trigger.strength)
    best: dict[int, float] = {}
    for trigger in ordered:
        best.setdefault(trigger.target, trigger.strength)
    return [trigger for trigger in ordered if trigger.gain > 0 and 2 * trigger.strength >= best[trigger.target]]
