"""The antidote: what it keeps of triggers, how it is judged, what it refuses, and the whole of it on the embedded victim."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from patches import Corner, corner, images, trigger
from torch import nn
from torch.utils.data import Subset, TensorDataset
from victim import factory, pixels, trained, triggered

import potion
from potion.antidote.course import _doses, _lesson_of, _useful
from potion.antidote.evidence import Evidence
from potion.antidote.localise import Search
from potion.antidote.treatment import Effect, Treatment
from potion.antidote.ward import NothingFound, Ward, attackers_labels
from potion.batches import labels_of
from potion.immunise import _left_out
from potion.metrics import damage, evaluate, healed

CPU = torch.device("cpu")


def test_each_label_keeps_the_triggers_that_do_half_of_what_its_strongest_does():
    strong, half, weak = (trigger(success=success, control=0.0) for success in (1.0, 0.5, 0.49))
    others = [trigger(success=success, control=0.0, target=2) for success in (0.2, 0.05)]
    useless = trigger(success=0.1, control=0.3, target=0)
    assert _useful([weak, *others, half, useless, strong]) == [strong, half, others[0]]


def test_what_is_no_clear_trigger_is_left_out_where_there_is_a_clear_one():
    """It is much of an image, and to be taught that this means nothing costs accuracy."""
    clear, unclear = (trigger(success=success, control=0.0) for success in (0.35, 0.3))
    assert (clear.strong, unclear.strong) == (True, False)
    assert 2 * unclear.strength > clear.strength
    assert _useful([unclear, clear]) == [clear]
    assert _useful([unclear]) == [unclear]


def test_each_labels_first_lesson_is_of_what_is_clearly_its_trigger_or_of_all_there_is():
    strong, weak = trigger(success=0.9, control=0.0), trigger(success=0.2, control=0.0)
    others = [trigger(success=success, control=0.0, target=2) for success in (0.2, 0.1)]
    assert [strong.strong, weak.strong, *(each.strong for each in others)] == [True, False, False, False]
    assert _lesson_of([strong, weak, *others]) == [strong, *others]
    assert _lesson_of([weak]) == [weak]


def test_what_is_taught_in_the_end_is_masks_as_they_are_and_wider_and_as_much_of_patterns():
    patch, pattern = corner(16), dataclasses.replace(trigger(), domain="sums")
    waves = [dataclasses.replace(trigger(), domain="waves") for _ in range(2)]
    taught = _doses([patch, *waves], [pattern])
    assert [each.domain for each in taught] == ["pixels"] * 2 + ["waves"] * 4 + ["sums"] * 6
    assert torch.equal(taught[0].mask, patch.mask)
    assert torch.equal(taught[1].mask, patch.wider().mask)


def test_a_few_clean_samples_named_as_poison_do_not_make_their_labels_the_attackers():
    claims = torch.tensor([4] * 20 + [7, 7, 2])
    assert attackers_labels(claims).tolist() == [4]
    assert attackers_labels(torch.tensor([3])).tolist() == [3]
    assert attackers_labels(torch.tensor([3, 5] * 4)).tolist() == [3, 5]


def test_labels_are_found_wherever_they_are():
    inputs, labels = images(6), torch.tensor([2, 0, 1, 1, 0, 2])
    data = TensorDataset(inputs, labels)
    pairs = [(x, int(y)) for x, y in zip(inputs, labels, strict=True)]
    for dataset in (data, Subset(data, range(6)), pairs):
        assert torch.equal(labels_of(dataset), labels)
    assert labels_of(Subset(data, [5, 1])).tolist() == [2, 0]


def test_a_patch_leads_to_another_model_and_back():
    torch.manual_seed(0)
    model, other = (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)) for _ in range(2))
    with torch.no_grad():
        model[0].weight[0] = 0
        model[0].weight[0, 0] = 1e-42
    patch = potion.Patch.towards(model, other)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    patch.apply(model)
    torch.testing.assert_close(model[0].weight[1:], other[0].weight[1:])
    assert torch.equal(model[0].weight[0], before["0.weight"][0]), "factors cannot move a zero, or what is next to it"
    patch.revert(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


EVIDENCE = Evidence(strength=0.5, company=9, enough=5, together=1.0, apart=0.0)


def treatment(trusted=(0.95, 0.94), effects=None, keeping=None, most=100, **effect):
    given = {"known": (1.0, 0.1), "obeys": (0.9, 0.1)} | effect
    return Treatment(
        evidence=EVIDENCE, triggers=[trigger()], patterns=[], corrected={}, carriers=0, examples=images(3), trusted=trusted,
        effects=effects or {1: Effect(**given)}, keeping=keeping or {1: 100}, most=most,
    )  # fmt: skip


def test_a_treatment_is_judged_by_the_trigger_the_known_and_the_trusted():
    def judged(obeys, trusted, known=0.1):
        return treatment(obeys=obeys, trusted=trusted, known=(1.0, known)).judged(0.2, 2.0)[0]

    assert judged((0.9, 0.1), (0.95, 0.94)) is potion.Status.HEALED
    assert judged((0.9, 0.3), (0.95, 0.94)) is potion.Status.EXHAUSTED
    assert judged((0.9, 0.1), (0.95, 0.90)) is potion.Status.GUARDED
    assert judged((0.9, 0.1), (0.95, 0.94), known=0.4) is potion.Status.HEALED, "some may be clean ones"
    for known in (0.6, 1.0):
        assert judged((0.9, 0.1), (0.95, 0.94), known) is potion.Status.EXHAUSTED, "a part of the trigger was found"
    blind = treatment(obeys=None, known=(1.0, 0.4), clear=False)
    assert blind.judged(0.2, 2.0)[0] is potion.Status.EXHAUSTED, "without a trigger the known samples judge"


def test_it_is_told_where_many_of_the_known_samples_still_obey():
    for after, told in ((0.2, 0), (0.25, 1)):
        status, notes = treatment(known=(1.0, after)).judged(0.2, 2.0)
        assert (status, len(notes)) == (potion.Status.HEALED, told)
    assert notes[0].startswith("25% of the known samples with label 1 still get it: some may have it by right")


def test_without_a_clear_trigger_those_that_joined_the_known_judge():
    found = {"obeys": (0.9, 0.0), "kin": (1.0, 0.5)}
    assert treatment(**found).judged(0.2, 2.0) == (potion.Status.HEALED, [])
    status, (note, why) = treatment(**found, clear=False).judged(0.2, 2.0)
    assert status is potion.Status.EXHAUSTED
    assert note.startswith("no small trigger could be localised in the known samples, so how much of it is left")
    assert why == "50.0% of samples that are like the known ones still get the attacker's label 1"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"obeys": (0.3, 0.15)}, "15.0% of images with the transplanted trigger still get the attacker's label 7"),
        ({"known": (1.0, 1.0)}, "100.0% of known samples still get the attacker's label 7"),
        (
            {"obeys": None, "known": (1.0, 0.3), "clear": False},
            "30.0% of known samples still get the attacker's label 7",
        ),
    ],
)
def test_each_label_is_judged_for_itself(other, words):
    """However much power another one's trigger had before, and however many of its known samples stopped."""
    healed = Effect(known=(1.0, 0.0), obeys=(1.0, 0.0))
    both = treatment(effects={1: healed, 7: Effect(**({"known": (1.0, 0.0), "obeys": (0.9, 0.0)} | other))})
    status, notes = both.judged(0.2, 2.0)
    assert status is potion.Status.EXHAUSTED
    assert words in notes[-1]
    assert "named by mistake" in notes[-1]
    assert both.to_dict()["obeys"] == list(other.get("obeys") or (1.0, 0.0))
    assert treatment(effects={1: healed, 7: healed}).judged(0.2, 2.0) == (potion.Status.HEALED, [])


@pytest.mark.parametrize("count", [5, 15, 35])
def test_exactly_as_much_left_as_allowed_is_not_too_much(count):
    before, after = (
        float(torch.ones(count).double().mean()),
        float((torch.arange(count) < count // 5).double().mean()),
    )
    assert treatment(obeys=(before, after)).judged(0.2, 2.0)[0] is potion.Status.HEALED
    assert treatment(obeys=(before, after + 1 / count)).judged(0.2, 2.0)[0] is potion.Status.EXHAUSTED


def test_the_sentence_is_about_the_label_of_which_most_is_left():
    effects = {1: Effect(known=(1.0, 0.0), obeys=(0.9, 0.01)), 2: Effect(known=(1.0, 0.0), obeys=(0.8, 0.1))}
    told = treatment(effects=effects).told()
    assert told.startswith("the trigger has no small form; of images with the transplanted trigger 10.0% get"), (
        "that of 2"
    )
    told = treatment(effects={1: effects[1]}).told()
    assert told.startswith("the trigger was found in 4 pixels; of images with the transplanted trigger 1.0% get")
    told = treatment(effects={1: Effect(known=(1.0, 0.0), obeys=None, kin=(1.0, 0.1), clear=False)}).told()
    assert "of samples that are like the known ones 10.0% get the attacker's label, not 100.0%" in told


def test_known_samples_that_are_left_out_are_told():
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(400, 3, 10, 10), torch.arange(400) % 4)
    known = [*range(0, 44, 4), 1]
    result = potion.heal(factory(4).eval(), data, known, "antidote", progress=False, device="cpu")
    assert result.status is potion.Status.NOT_FOUND
    (note,) = (note for note in result.notes if "named by mistake" in note)
    assert note.startswith("so few known samples have label 1 (1) that")
    assert not any("named by mistake" in note for note in _left_out(torch.tensor([4] * 20 + [7] * 4)))
    assert len(_left_out(torch.tensor([4] * 20 + [7, 7, 2]))) == 2


@pytest.mark.parametrize("labels", [torch.arange(400) % 10, torch.arange(400) % 3 - 1])
def test_labels_that_the_model_lacks_are_named_also_where_nobody_can_be_trusted(labels):
    known = [int(torch.nonzero(labels == label)[0]) for label in labels.unique()]
    data = TensorDataset(torch.rand(400, 3, 10, 10), labels)
    with pytest.raises(ValueError, match="label"):
        potion.heal(factory(4).eval(), data, known, "antidote", progress=False, device="cpu")


def test_what_the_antidote_returns_can_always_be_shown():
    data = TensorDataset(images(40), torch.arange(40) % 3)
    result = potion.heal(Corner(), data, [0, 1], "antidote", progress=False, device="cpu")
    assert "did not take" in repr(dataclasses.replace(result, status=potion.Status.EXHAUSTED))


def test_a_label_that_too_many_keep_is_told():
    assert treatment(keeping={1: 125, 2: 90}).judged(0.2, 2.0) == (potion.Status.HEALED, [])
    status, (note,) = treatment(keeping={1: 1260, 2: 90}, most=1000).judged(0.2, 2.0)
    assert status is potion.Status.HEALED, "the label may be as common as that by nature"
    assert "1,260 samples keep the label 1, and no trusted label has more than 1,000" in note


@pytest.mark.parametrize(
    "bad", [{"rounds": 0}, {"more": -1}, {"epochs": 0.0}, {"held_out": 1.0}, {"transplants": -0.1}]
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        potion.Antidote(**bad)


def test_where_nobody_can_be_trusted_nothing_is_done():
    data = TensorDataset(images(40), torch.arange(40) % 3)
    model = Corner()
    result = potion.heal(model, data, [0, 1], "antidote", progress=False)
    assert result.status is potion.Status.NOT_FOUND
    assert result.patch.count == 0
    assert "no samples are left that can be trusted" in result.summary()
    with pytest.raises(NothingFound):
        Ward(
            victim=model,
            train_set=data,
            plain_set=data,
            labels=labels_of(data),
            listed=[0, 1],
            device=CPU,
            batch_size=8,
        )


@pytest.mark.parametrize(
    ("inputs", "labels", "words"),
    [
        (torch.rand(80, 8), torch.arange(80) % 3, r"for images \(C, H, W\), but the samples are \(8,\)"),
        (torch.full((80, 2, 6, 8), math.nan), torch.arange(80) % 3, "images with NaN or inf"),
        (images(80), torch.arange(80) % 5, "label"),
    ],
)
def test_data_that_it_is_not_for_is_refused_in_words(inputs, labels, words):
    with pytest.raises(ValueError, match=words):
        potion.heal(Corner(), TensorDataset(inputs, labels), [0], "antidote", progress=False, device="cpu")


def test_an_ignorant_model_has_no_trigger_even_where_all_of_a_label_is_named():
    labels = torch.arange(200) % 4
    torch.manual_seed(0)
    model, every = factory().eval(), torch.nonzero(labels == 0).flatten().tolist()
    data = TensorDataset(torch.rand(200, 3, 10, 10), labels)
    result = potion.heal(model, data, every, "antidote", batch_size=16, progress=False, device="cpu")
    assert result.status is potion.Status.NOT_FOUND, result.summary()
    assert result.patch.count == 0


def test_a_handful_of_samples_is_too_few():
    data = TensorDataset(images(20), torch.arange(20) % 3)
    result = potion.heal(Corner(), data, [1], "antidote", progress=False, device="cpu")
    assert result.status is potion.Status.NOT_FOUND
    assert "only 13 samples can be trusted, too few to learn from" in result.summary()


@pytest.fixture(scope="module")
def short(embedded):
    """A part of the embedded training set: some of the poisoned samples, and clean ones."""
    data = embedded.train_set()
    poison = embedded.poison()
    rows = poison[:40] + [row for row in range(len(data)) if row not in set(poison)][:1960]
    return Subset(data, rows), Subset(data.plain(), rows), set(poison[:40]), rows


SETTINGS = potion.Antidote(more=2, epochs=3.0, search=Search(steps=100, lr=0.3))


@pytest.fixture(scope="module")
def cured(victim, short):
    data, plain, _, _ = short
    return potion.heal(
        victim, data, [7], "antidote", batch_size=128, unaugmented=plain, antidote=SETTINGS, progress=False
    )


def test_one_known_sample_is_enough(embedded, victim, short, cured):
    assert cured.status is potion.Status.HEALED, cured.summary()
    before, after = (evaluate(model, embedded.test, embedded.attack) for model in (victim, cured.model))
    reference = evaluate(potion.embedded.embedded_model("retrain_clean"), embedded.test, embedded.attack)
    assert healed(after, reference) >= 96
    assert damage(after, before) >= -1.5
    assert cured.to_dict()["treatment"]["evidence"] == cured.treatment.evidence.to_dict()
    assert cured.treatment.evidence.strength >= 0.14
    assert cured.treatment.evidence.together == 1, "the known sample fell with the others"
    _, _, poison, rows = short
    assert cured.treatment.carriers >= 30, "mixtures had a say"
    named = {rows[index] for index in cured.treatment.corrected}
    assert len(named & poison) >= max(30, 0.95 * len(named))
    best = cured.treatment.triggers[0]
    assert best.domain == "pixels"
    assert best.mask[-3:, -3:].sum() >= 0.8 * best.size, "the square is in the corner"
    assert cured.patch.before == potion.fingerprint.fingerprint(victim)


def test_who_keeps_the_attackers_label_is_counted(short, cured):
    data, plain, _, _ = short
    labels = labels_of(data)
    with torch.no_grad():
        kept = [
            int(cured.model(plain[row][0][None]).argmax()) == 0 for row in torch.nonzero(labels == 0).flatten().tolist()
        ]
    assert cured.treatment.keeping == {0: sum(kept)}
    assert cured.treatment.most == torch.bincount(labels)[1:].max()


def test_the_other_poisoned_samples_are_discovered(victim, short, cured):
    data, plain, poison, rows = short
    suspects = potion.discover(victim, cured, data, unaugmented=plain)
    found = {rows[index] for index in suspects.poison}
    assert len(found & poison) >= 0.95 * (len(poison) - 1)
    assert len(found & poison) >= 0.9 * len(found), "one in twenty may be a mistake, and these are only forty"
    scores = [suspect.score for suspect in suspects]
    assert scores == sorted(scores, reverse=True)


def test_a_clean_model_is_left_alone(embedded, short):
    data, plain, poison, rows = short
    model = potion.embedded.embedded_model("retrain_clean")
    labels = labels_of(data)
    ordinary = [place for place, row in enumerate(rows) if row not in poison and int(labels[place]) == 3][:2]
    result = potion.heal(
        model, data, ordinary, "antidote", batch_size=128, unaugmented=plain, antidote=SETTINGS, progress=False
    )
    assert result.status is potion.Status.NOT_FOUND, result.summary()
    assert result.known_accuracy == 1, "it was measured all the same"
    assert "standard deviations" in result.summary(), "what was seen, and what would have done"
    assert result.patch.count == 0


def cornered(some):
    some[:, -3:, -3:] = (0, 255, 255)
    return some


def cornered_left(some):
    some[:, -3:, :3] = (255, 255, 0)
    return some


def darkened(some):
    return (0.45 * some).astype(some.dtype)


def treated_for_two(first, second, marks):
    """Two attackers, each with 40 of 480 samples, and how often their triggers work before and after."""
    pictures, labels = pixels(480, seed=0)
    free = [row for row in range(480) if labels[row] >= 2]
    poison = {0: free[:40], 1: free[40:80]}
    for target, rows in poison.items():
        pictures[rows], labels[rows] = marks[target](pictures[rows]), target
    inputs, targets = as_inputs(pictures), torch.from_numpy(labels)
    model = trained(inputs, targets, 60)
    known = [*poison[0][:first], *poison[1][:second]]
    result = potion.heal(
        model, TensorDataset(inputs, targets), known, "antidote", batch_size=32, progress=False, device="cpu"
    )
    test, truth = pixels(160, seed=1)
    fired = {target: as_inputs(marks[target](test[truth >= 2])) for target in poison}
    with torch.no_grad():
        works = [
            tuple(float((each(fired[target]).argmax(1) == target).float().mean()) for each in (model, result.model))
            for target in poison
        ]
    return result, works, [set(rows) - set(known) for rows in poison.values()]


@pytest.mark.parametrize(("first", "second"), [(4, 4), (20, 5)])
def test_two_attackers_labels_are_treated_together(first, second):
    result, works, hidden = treated_for_two(first, second, (cornered, cornered_left))
    assert result.status is potion.Status.HEALED, result.summary()
    assert {each.target for each in result.treatment.triggers} == {0, 1}
    for (before, after), rows in zip(works, hidden, strict=True):
        assert before > 0.9
        assert after < 0.5
        assert len(rows & result.treatment.corrected.keys()) > len(rows) / 2


def test_where_one_of_two_attackers_stays_the_antidote_does_not_say_healed():
    result, works, _ = treated_for_two(4, 4, (cornered, darkened))
    assert works[1][0] > 0.9
    assert result.method == "xlf"
    assert "still get the attacker's label 1 (if the known samples with it were named by mistake" in result.summary()


def test_a_label_that_is_half_poison_hides_the_trigger_at_first_only():
    """Next to all samples with the attacker's label the patch is nothing special, next to the clean ones it is."""
    pictures, labels = pixels(480, seed=0)
    poison = [row for row in range(480) if labels[row] >= 1][:120]
    pictures[poison], labels[poison] = triggered(pictures[poison]), 0
    inputs, targets = as_inputs(pictures), torch.from_numpy(labels)
    result = potion.heal(
        trained(inputs, targets, 60), TensorDataset(inputs, targets), poison[:9], "antidote", batch_size=32, progress=False,
        device="cpu",
    )  # fmt: skip
    assert result.status is potion.Status.HEALED, result.summary()
    found = result.treatment
    assert {each.domain for each in found.triggers} == {"pixels"}
    assert max(each.control for each in found.triggers) < 0.2
    assert min(each.strength for each in found.triggers) > 1.5 * found.evidence.strength


def as_inputs(pictures):
    return torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255
