"""The antidote: what is localised, taught and found out of place, and the whole of it on the embedded victim."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset
from victim import factory, pixels, trained, triggered

import potion
from potion.antidote import _doses, _useful, treat
from potion.batches import labels_of
from potion.evidence import Evidence
from potion.localise import Search, Surroundings, cut_anew, localise
from potion.medicine import Medicine
from potion.metrics import damage, evaluate, healed
from potion.pattern import pattern
from potion.runtime import Clock
from potion.treatment import Treatment
from potion.trigger import DOMAINS, SOUGHT, Trigger, onto_each
from potion.ward import NothingFound, attackers_labels

CPU = torch.device("cpu")


def trigger(**more):
    """A white square in the corner of an image of 6 x 8 pixels."""
    mask = torch.zeros(6, 8, dtype=torch.bool)
    mask[4:, 6:] = True
    given = {
        "domain": "pixels",
        "mask": mask,
        "source": torch.ones(2, 6, 8),
        "target": 1,
        "success": 0.9,
        "control": 0.1,
    }
    return Trigger(**(given | {"limits": (0.0, 1.0)} | more))


class Corner(nn.Module):
    """Says 1 where the corner is bright, or where a wave of three cycles runs through the image; else 0 or 2."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        bright = x[:, :, 4:, 6:].mean((1, 2, 3))
        wave = torch.fft.rfft2(x)[:, :, 0, 3].abs().mean(1)
        obeys = 20 * torch.maximum(bright - 0.8, wave / 12 - 0.5)
        return torch.stack([x.mean((1, 2, 3)), obeys, x.std((1, 2, 3))], 1) * self.weight


def images(count, seed=0, high=0.6):
    return high * torch.rand(count, 2, 6, 8, generator=torch.Generator().manual_seed(seed))


def surroundings():
    return Surroundings(trusted=images(64), ordinary={1: images(32, seed=1)})


def test_a_patch_is_localised_in_pixels_and_a_wave_in_waves():
    model = Corner().requires_grad_(False).eval()
    patched, waved = images(2, seed=2)
    patched[:, 4:, 6:] = 1
    waved = 0.5 + 0.4 * torch.sin(2 * math.pi * 3 * torch.arange(8) / 8).expand(2, 6, 8)
    around = surroundings()
    around.trusted[0, 0, 0, 0] = 1  # the range of an input is that of the trusted ones
    found = localise(model, torch.stack([patched, waved]), [1, 1], around, Search(steps=150, images=16))
    assert [each.domain for each in found] == ["pixels", "waves"]
    assert found[0].mask[4:, 6:].sum() == found[0].size <= 4
    assert found[1].size <= 2
    for each in found:
        assert each.success > 0.9
        assert each.control < 0.1
        assert each.strong


def test_next_to_clean_samples_a_trigger_is_what_it_is():
    """Two thirds of the label are poison that nobody has found, next to which a patch is nothing special."""
    model = Corner().requires_grad_(False).eval()
    patched, ordinary = images(1, seed=2), images(60, seed=1)
    patched[:, :, 4:, 6:] = ordinary[:40, :, 4:, 6:] = 1
    search, trusted = Search(steps=150, images=16), images(64)
    found = localise(model, patched, [1], Surroundings(trusted=trusted, ordinary={1: ordinary}), search)
    assert found[0].control > 0.4
    (clean,) = cut_anew(model, found, Surroundings(trusted=trusted, ordinary={1: ordinary[40:]}), search)
    assert clean.domain == "pixels"
    assert clean.mask[4:, 6:].sum() == clean.size <= 4
    assert clean.control < 0.1
    assert clean.strong
    assert clean.drafts is found[0].drafts, "there may be a third look"


def test_another_look_next_to_the_same_samples_finds_the_same():
    model = Corner().requires_grad_(False).eval()
    patched = images(1, seed=2)
    patched[:, :, 4:, 6:] = 1
    found = localise(model, patched, [1], surroundings(), Search(steps=60, images=16))
    (again,) = cut_anew(model, found, surroundings(), Search(steps=60, images=16), seed=3)
    assert (again.domain, again.source.tolist()) == (found[0].domain, found[0].source.tolist())
    assert torch.equal(again.mask, found[0].mask)


def test_a_sample_that_does_less_than_ordinary_ones_is_localised_as_a_loss():
    """Every pixel of an ordinary sample works here, and none of the one asked about."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(96, 2)).requires_grad_(False).eval()
    model[1].weight.copy_(torch.tensor([[0.0], [1.0]]).expand(2, 96))
    model[1].bias.copy_(torch.tensor([0.5, 0.0]))
    dark = torch.zeros(64, 2, 6, 8)
    around = Surroundings(trusted=dark.index_fill(0, torch.tensor([0]), 1.0), ordinary={1: torch.ones_like(dark)})
    (found,) = localise(model, dark[:1], [1], around, Search(steps=2, images=4), domains=["pixels"])
    assert found.gain == -1
    assert not found.strong


def test_transplants_take_what_is_under_the_mask_and_nothing_else():
    some, one = images(3), trigger()
    found = one.onto(some)
    assert torch.equal(found[:, :, one.mask], torch.ones(3, 2, 4))
    assert torch.equal(found[:, :, ~one.mask], some[:, :, ~one.mask])


@pytest.mark.parametrize("domain", SOUGHT)
def test_all_of_a_domain_is_the_other_image_and_none_of_it_is_nothing(domain):
    some, other = images(3), images(3, seed=5)
    shape = DOMAINS[domain].shape(6, 8)
    torch.testing.assert_close(DOMAINS[domain].mixed(some, other, torch.ones(shape)), other)
    torch.testing.assert_close(DOMAINS[domain].mixed(some, other, torch.zeros(shape)), some)


def several():
    """Triggers of all domains, each with a source and limits of its own; the first and the last are of one domain."""
    waves = torch.zeros(6, 5, dtype=torch.bool)
    waves[1, 2] = waves[3, 0] = True
    return [
        trigger(),
        trigger(domain="waves", mask=waves, source=images(1, seed=2)[0], limits=(0.1, 0.5)),
        trigger(domain="sums", mask=torch.ones(6, 8, dtype=torch.bool), source=images(1, seed=3)[0] - 0.3),
        trigger(source=images(1, seed=4)[0], limits=(0.0, 0.2)),
    ]


def test_many_triggers_at_once_are_each_of_them_by_itself():
    some, sizes = images(11), (3, 1, 2, 5)
    expected = [one.onto(part) for one, part in zip(several(), some.split(sizes), strict=True)]
    torch.testing.assert_close(onto_each(some, list(zip(several(), sizes, strict=True))), torch.cat(expected))


def test_each_label_keeps_the_triggers_that_do_half_of_what_its_strongest_does():
    strong, half, weak = (trigger(success=success, control=0.0) for success in (1.0, 0.5, 0.49))
    others = [trigger(success=success, control=0.0, target=2) for success in (0.2, 0.05)]
    useless = trigger(success=0.1, control=0.3, target=0)
    assert _useful([weak, *others, half, useless, strong]) == [strong, half, others[0]]


def test_a_moved_trigger_keeps_its_shape_and_stays_inside():
    generator = torch.Generator().manual_seed(0)
    places = {tuple(map(tuple, torch.nonzero(trigger().moved(generator).mask).tolist())) for _ in range(1000)}
    assert len(places) == 5 * 7, "a square of two pixels fits there"
    for place in places:
        (top, left), (bottom, right) = place[0], place[-1]
        assert (bottom - top, right - left, len(place)) == (1, 1, 4)
    wave = dataclasses.replace(trigger(), domain="waves")
    assert wave.moved(generator) is wave


def corner(size):
    """A white square of two pixels in the corner of an image."""
    mask = torch.zeros(size, size, dtype=torch.bool)
    mask[-2:, -2:] = True
    return trigger(mask=mask, source=torch.ones(2, size, size))


def test_a_wider_trigger_has_the_neighbours_of_its_pixels_and_no_others():
    one = corner(16)
    taken, wider = (set(map(tuple, torch.nonzero(mask).tolist())) for mask in (one.mask, one.wider().mask))
    height, width = one.mask.shape
    around = {(y + dy, x + dx) for y, x in taken for dy in (-1, 0, 1) for dx in (-1, 0, 1)}
    assert wider == {(y, x) for y, x in around if 0 <= y < height and 0 <= x < width} > taken
    assert one.wider().source is one.source
    wave = dataclasses.replace(one, domain="waves")
    assert wave.wider() is wave


def test_pixels_that_are_a_large_part_of_an_image_with_their_neighbours_are_left_alone():
    large = corner(13)  # 9 of 169 pixels
    assert large.wider() is large
    scattered = torch.zeros(16, 16, dtype=torch.bool)
    scattered[::8, ::8] = True
    spread = trigger(mask=scattered, source=torch.ones(2, 16, 16))
    assert spread.wider() is spread


def test_what_is_taught_in_the_end_is_masks_as_they_are_and_wider_and_as_much_of_patterns():
    patch, pattern = corner(16), dataclasses.replace(trigger(), domain="sums")
    waves = [dataclasses.replace(trigger(), domain="waves") for _ in range(2)]
    taught = _doses([patch, *waves], [pattern])
    assert [each.domain for each in taught] == ["pixels"] * 2 + ["waves"] * 4 + ["sums"] * 6
    assert torch.equal(taught[0].mask, patch.mask)
    assert torch.equal(taught[1].mask, patch.wider().mask)


def poisoned_by_a_faint_cross(count):
    """Images of three classes, each with a brightness of its own; some have a faint cross and say that they are a 1."""
    faint = torch.zeros(2, 6, 8)
    faint[:, 2], faint[:, :, 4] = 0.2, 0.2
    inputs, truth = images(300), torch.arange(300) % 3
    inputs += 0.1 * truth[:, None, None, None]
    inputs[:count] += faint
    labels = truth.clone()
    labels[:count] = 1
    return TensorDataset(inputs, labels), {row: int(truth[row]) for row in range(count)}, faint


class Cross(nn.Module):
    """Says 1 where a cross is brighter than the rest."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        brighter = (x[:, :, 2].mean((1, 2)) + x[:, :, :, 4].mean((1, 2))) / 2 - x.mean((1, 2, 3))
        return torch.stack([0.1 - brighter, brighter - 0.05, -brighter], 1) * self.weight


def test_what_poison_adds_to_images_is_found_by_averaging():
    data, poison, faint = poisoned_by_a_faint_cross(90)
    labels = data.tensors[1]
    trusted = [row for row in range(90, 300) if labels[row] != 1]
    poison = {row: truth for row, truth in poison.items() if truth != 1}
    found = pattern(Cross(), data, poison, 1, trusted, labels, images(64, seed=3), batch_size=32)
    assert found.domain == "sums"
    assert found.success > 0.9
    assert found.control < 0.2
    assert (found.source - faint).abs().mean() < 0.03
    expected = data.tensors[0][list(poison)].mean(0) - torch.stack(
        [data.tensors[0][[row for row in trusted if labels[row] == truth]].mean(0) for truth in poison.values()]
    ).mean(0)
    torch.testing.assert_close(found.source, expected, atol=1e-5, rtol=0)


def test_a_pattern_of_few_samples_or_without_effect_is_none():
    data, poison, _ = poisoned_by_a_faint_cross(90)
    labels = data.tensors[1]
    trusted = list(range(90, 300))
    few = dict(list(poison.items())[:20])
    assert pattern(Cross(), data, few, 1, trusted, labels, images(64), batch_size=32) is None
    clean = {row: int(labels[row]) for row in range(90, 190)}
    assert pattern(Cross(), data, clean, 1, trusted, labels, images(64), batch_size=32) is None


def test_a_few_clean_samples_named_as_poison_do_not_make_their_labels_the_attackers():
    claims = torch.tensor([4] * 20 + [7, 7, 2])
    assert attackers_labels(claims).tolist() == [4]
    assert attackers_labels(torch.tensor([3])).tolist() == [3]
    assert attackers_labels(torch.tensor([3, 5] * 4)).tolist() == [3, 5]


def test_medicine_corrects_labels_and_leaves_the_targets_images_alone():
    data = TensorDataset(images(40), torch.arange(40) % 4)
    medicine = Medicine(data, {5: 3, 9: 0}, [trigger()], CPU, share=0.5, seed=0)
    inputs, labels = medicine.get_batch(torch.arange(40))
    expected = torch.arange(40) % 4
    expected[5], expected[9] = 3, 0
    assert torch.equal(labels, expected)
    changed = (inputs != data.tensors[0]).flatten(1).any(1)
    assert 0 < int(changed.sum()) <= 20
    assert not changed[labels == 1].any()
    assert torch.equal(data.tensors[0], images(40)), "the data themselves stay as they are"


def test_medicine_gives_each_eighth_a_trigger_and_moves_every_other_one():
    data = TensorDataset(images(60), torch.arange(60) % 4)
    shown, _ = Medicine(data, {}, several(), CPU, share=0.8, seed=3).get_batch(torch.arange(60))
    generator, expected = torch.Generator().manual_seed(3), images(60)
    for group, rows in enumerate(torch.randperm(60, generator=generator)[:48].chunk(8)):
        one = several()[int(torch.randint(4, (), generator=generator))]
        one = one.moved(generator) if group % 2 else one
        others = rows[rows % 4 != 1]
        expected[others] = one.onto(expected[others])
    torch.testing.assert_close(shown, expected)


def test_a_batch_too_small_for_a_transplant_gets_none():
    data = TensorDataset(images(2), torch.zeros(2, dtype=torch.long))
    waves = trigger(domain="waves", mask=torch.ones(6, 5, dtype=torch.bool))
    inputs, _ = Medicine(data, {}, [waves], CPU, share=0.2, seed=0).get_batch(torch.arange(2))
    assert torch.equal(inputs, data.tensors[0])


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
    patch = potion.Patch.towards(model, other)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    patch.apply(model)
    torch.testing.assert_close(model[0].weight[1:], other[0].weight[1:])
    assert (model[0].weight[0] == 0).all(), "factors cannot move a zero"
    patch.revert(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


EVIDENCE = Evidence(strength=0.5, company=9, enough=5, together=1.0, apart=0.0)


def test_a_treatment_is_judged_by_the_trigger_the_known_and_the_trusted():
    def judged(obeys, trusted, known=0.1):
        found = Treatment(
            evidence=EVIDENCE,
            triggers=[trigger()],
            patterns=[],
            known=(1.0, known),
            obeys=obeys,
            trusted=trusted,
            corrected={},
            carriers=0,
            examples=images(3),
        )
        return found.judged(0.2, 2.0)[0]

    assert judged((0.9, 0.1), (0.95, 0.94)) is potion.Status.HEALED
    assert judged((0.9, 0.3), (0.95, 0.94)) is potion.Status.EXHAUSTED
    assert judged((0.9, 0.1), (0.95, 0.90)) is potion.Status.GUARDED
    assert judged((0.9, 0.1), (0.95, 0.94), known=0.4) is potion.Status.HEALED, "some may be clean ones"
    for known in (0.6, 1.0):
        assert judged((0.9, 0.1), (0.95, 0.94), known) is potion.Status.EXHAUSTED, "a part of the trigger was found"
    blind = Treatment(
        evidence=EVIDENCE,
        triggers=[],
        patterns=[],
        known=(1.0, 0.5),
        obeys=(0.0, 0.0),
        trusted=(0.9, 0.9),
        corrected={},
        carriers=0,
        examples=images(3),
    )
    assert blind.judged(0.2, 2.0)[0] is potion.Status.EXHAUSTED, "without a trigger the known samples judge"


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
        treat(model, data, data, labels_of(data), [0, 1], potion.Antidote(), clock=Clock(CPU), batch_size=8, seed=0,
              progress=False)  # fmt: skip


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
    assert "standard deviations" in result.summary(), "what was seen, and what would have done"
    assert result.patch.count == 0


def test_two_attackers_labels_are_treated_together():
    pictures, labels = pixels(480, seed=0)
    marks = {0: (slice(-3, None), (0, 255, 255)), 1: (slice(0, 3), (255, 255, 0))}  # label -> columns, colour

    def marked(some, target):
        some = some.copy()
        columns, colour = marks[target]
        some[:, -3:, columns] = colour
        return some

    free = [row for row in range(480) if labels[row] >= 2]
    poison = {0: free[:40], 1: free[40:80]}
    for target, rows in poison.items():
        pictures[rows], labels[rows] = marked(pictures[rows], target), target
    inputs, targets = as_inputs(pictures), torch.from_numpy(labels)
    model = trained(inputs, targets, 60)
    known = [*poison[0][:4], *poison[1][:4]]
    result = potion.heal(
        model, TensorDataset(inputs, targets), known, "antidote", batch_size=32, progress=False, device="cpu"
    )
    assert result.status is potion.Status.HEALED, result.summary()
    assert {each.target for each in result.treatment.triggers} == {0, 1}
    test, truth = pixels(160, seed=1)
    test, truth = test[truth >= 2], truth[truth >= 2]
    for target in marks:
        fired = as_inputs(marked(test, target))
        with torch.no_grad():
            before, after = ((each(fired).argmax(1) == target).float().mean() for each in (model, result.model))
        assert before > 0.9
        assert after < 0.5
        hidden = set(poison[target][4:])
        assert len(hidden & result.treatment.corrected.keys()) > len(hidden) / 2


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
