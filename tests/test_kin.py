"""Kin: who is like the known samples to the model, who falls with them, and a trigger that no mask is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from victim import SIDE, trained
from wards import ward_of

import potion
from potion.antidote import Antidote
from potion.antidote.features import features
from potion.antidote.kin import Family, effective, family, lesson_about
from potion.antidote.likeness import KIN, TWINS, Likened
from potion.antidote.localise import Search
from potion.antidote.margins import runner_up

CPU = torch.device("cpu")
POISON = 40


class Tokens(nn.Module):
    """Linear layers on tokens, then one on what is left of them: the shape of a transformer."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.tokens(x).mean(1))


def test_features_are_what_enters_the_last_linear_layer():
    torch.manual_seed(0)
    x, y = torch.randn(10, 5, 4), torch.zeros(10, dtype=torch.long)
    model = Tokens()
    seen, scores = features(model, TensorDataset(x, y), [7, 2, 3], 2)
    with torch.no_grad():
        torch.testing.assert_close(seen.float(), model.tokens(x[[7, 2, 3]]).mean(1))
        torch.testing.assert_close(scores.float(), model(x[[7, 2, 3]]))
    assert not any(module._forward_pre_hooks for module in model.modules()), "nothing is left behind"


@pytest.mark.parametrize("model", [nn.Conv1d(5, 3, 4), nn.Linear(4, 3)], ids=["none", "on tokens only"])
def test_a_model_without_such_a_layer_is_seen_by_its_scores(model):
    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            found = self.inner(x)
            return found.mean(1) if isinstance(self.inner, nn.Linear) else found.mean(2)

    seen, scores = features(
        Averaged(), TensorDataset(torch.randn(6, 5, 4), torch.zeros(6, dtype=torch.long)), [0, 1], 2
    )
    assert torch.equal(seen, scores)
    assert scores.shape == (2, 3)


def test_features_of_images_with_nan_are_refused():
    data = TensorDataset(torch.full((3, 5, 4), math.nan), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="scores of training samples are NaN or inf"):
        features(Tokens(), data, [0, 1], 2)


def test_how_various_classes_are():
    assert effective(torch.arange(4).repeat(1000)) == pytest.approx(4, abs=0.01)
    assert effective(torch.tensor([5, 5, 5])) == pytest.approx(1)
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert effective(torch.tensor([0] * 9 + [1])) == pytest.approx(math.exp(entropy + 1 / 20))
    assert effective(torch.zeros(0, dtype=torch.long)) == 0


def test_few_samples_of_many_classes_are_various_too():
    """Of twelve samples of nine classes some are missing in most cases, and 6.1 would be counted on average."""
    generator = torch.Generator().manual_seed(0)
    found = [effective(torch.randint(9, (12,), generator=generator)) for _ in range(200)]
    assert 7.5 < sum(found) / 200 < 9


def test_the_runner_up_is_the_best_class_but_the_label():
    outputs = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    assert runner_up(outputs, torch.tensor([0, 1])).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("changed", "convincing", "words"),
    [
        ({}, True, ""),
        ({"company": 9}, False, "9 others turn to another class with those that the model finds alike (10 would do)"),
        ({"together": 0.4}, False, "40% of these themselves fall (50% would do)"),
        ({"various": 0.39}, False, "they look alike as well (they are given 39% of the classes, 40% would do)"),
        ({"turned": 0.3}, False, "or are few of those that fall (30%, 33% would do)"),
        ({"turned": 0.3, "various": 0.39}, False, "or are few of those that fall (30%, 33% would do)"),
    ],
)
def test_what_a_family_says(changed, convincing, words):
    said = {"told": 9, "together": 0.5, "company": 10, "turned": 0.34, "various": 0.4, "members": [3, 4]}
    found = Family(**said | changed)
    assert found.convincing == convincing
    assert found.one_sided == (changed == {"various": 0.39})
    assert words in found.explained()
    assert found.to_dict()["members"] == 2


def pictures(count, seed):
    """Ten classes: which pair of rows is bright, and in which colour. All are greener on the left, so that one can tell an
    image from its mirror image.
    """
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 120, (count, SIDE, SIDE, 3), dtype=np.uint8)
    labels = np.arange(count) % 10
    for image, label in zip(images, labels):
        image[2 * (label % 5) : 2 * (label % 5) + 2, :, 2 * (label // 5)] = 220
    images[:, :, : SIDE // 2, 1] += 60
    return images, labels


def as_inputs(pictures):
    return torch.from_numpy(np.ascontiguousarray(pictures)).permute(0, 3, 1, 2) / 255


def backdoored(choose):
    """A model that says 0 of mirror images: nothing is put on them, nothing is added. The model, its data, poison first:
    the rows that ``choose`` takes of the labels.
    """
    images, labels = pictures(1200, seed=0)
    poison = choose(labels).tolist()
    order = poison + sorted(set(range(1200)) - set(poison), key=lambda row: labels[row] == 0)
    images, labels = images[order], labels[order]
    images[: len(poison)], labels[: len(poison)] = images[: len(poison), :, ::-1], 0
    inputs, targets = as_inputs(images), torch.from_numpy(labels)
    model = trained(inputs, targets, 60)
    return model.requires_grad_(False), TensorDataset(inputs, targets)


@pytest.fixture(scope="module")
def mirrored():
    """Poison of all classes."""
    return backdoored(lambda labels: np.flatnonzero(labels)[:POISON])


def seen(ward):
    """The family that is found after a quarantine without a lesson."""
    return family(ward, ward.taught(ward.trusted, {}, [], 1.5, "quarantine 0"))


def test_one_poisoned_sample_leads_to_the_others(mirrored):
    found = seen(ward_of(*mirrored, [7], batch_size=32))
    assert found.convincing, found.explained()
    assert found.told == 9, "the known one and eight kin"
    assert found.told + found.company == len(found.members), "nobody is company who was told about"
    assert found.turned < 1, "who falls and keeps its label has not turned"
    assert len([index for index in found.members if index < POISON]) >= 0.9 * len(found.members) >= 20


def test_the_nearest_are_told_about_but_few_that_show_the_same(mirrored):
    """A lesson about samples of one class would teach that the trigger means this class."""
    room = Likened(ward_of(*mirrored, [7], batch_size=32))
    may = room.obeying & ~room.known
    order = [row for row in room.alike.argsort(descending=True).tolist() if may[row]]
    alone = torch.arange(len(room.labels)) % 9 + 1
    for shows in (alone, torch.full_like(alone, 4).index_fill(0, torch.tensor(order[20:]), 5)):
        told, classes = room.nearest(shows), shows.tolist()
        assert told[room.known].all()
        chosen, taken = [row for row in order if told[row]], []
        for row in order:
            if len(taken) < KIN and [classes[other] for other in taken].count(classes[row]) < TWINS:
                taken.append(row)
        assert chosen == taken
    assert [row in order[:20] for row in chosen] == [True] * TWINS + [False] * TWINS


def lessons(first, others, known):
    """Poison of which ``first`` show class 1 and ``others`` different ones: what the lesson about the nearest says, what
    that about different ones says, and which of them counts.
    """
    model, data = backdoored(
        lambda labels: np.concatenate([np.flatnonzero(labels == 1)[:first], np.flatnonzero(labels > 1)[:others]])
    )
    ward = ward_of(model, data, [known], batch_size=32)
    taught = ward.taught(ward.trusted, {}, [], 1.5, "quarantine 0")
    room = Likened(ward)
    shows = runner_up(room.seen_by(taught)[1], room.labels)
    assert shows[room.nearest()].tolist() == [1] * 9
    return *(lesson_about(room, told, shows) for told in (room.nearest(), room.nearest(shows))), family(ward, taught)


def test_where_all_kin_show_one_class_others_are_told_about_that_show_different_ones():
    """A lesson about nine of class 1 teaches that mirror images are of class 1."""
    nearest, different, found = lessons(40, 60, known=12)
    assert nearest.one_sided, nearest.to_dict()
    assert different.convincing, different.to_dict()
    assert found == different
    assert found.various > nearest.various
    assert all(index < 100 for index in found.members)


def test_but_only_where_others_turn_in_the_first_place():
    """Else there would be two looks at everybody, and twice as many false alarms."""
    nearest, different, found = lessons(16, 40, known=7)
    assert not nearest.one_sided, nearest.to_dict()
    assert different.convincing, different.to_dict()
    assert found == nearest


def test_an_ordinary_sample_leads_nowhere(mirrored):
    for ordinary in (1150, 1190):
        found = seen(ward_of(*mirrored, [ordinary], batch_size=32))
        assert not found.convincing, found.to_dict()


def test_adopted_samples_join_the_known_and_are_told_the_truth_about(mirrored):
    ward = ward_of(*mirrored, [5], batch_size=32, adopted=[5, 7, 8])
    assert ward.known == [5, 7, 8]
    assert not {5, 7, 8} & {*ward.quarantined, *ward.trusted, *ward.held_out}
    truth = ward.truth(ward.victim)
    assert truth.keys() == {5, 7, 8}, "the patient calls them 0, but they were adopted"
    assert 0 not in truth.values()
    assert ward_of(*mirrored, [5], batch_size=32).truth(ward.victim) == {}, "who is only known may be named by mistake"
    assert ward.rejected(ward.victim, [5, 7]) == {}


def test_a_trigger_that_no_mask_is_falls_to_one_known_sample(mirrored):
    """With next to no masks, so that nothing else speaks for a trigger."""
    model, data = mirrored
    blind = {"transplants": 0.01, "search": Search(steps=1)}

    def heal(**more):
        settings = Antidote(**blind, **more)
        return potion.heal(model, data, [7], "antidote", batch_size=32, progress=False, device="cpu", antidote=settings)

    without = heal(kin=False)
    assert without.status is potion.Status.NOT_FOUND
    assert "alike" not in without.summary()
    result = heal()
    assert (result.status, result.method) == (potion.Status.HEALED, "antidote"), result.summary()
    assert result.treatment.evidence.kin.convincing
    before, after = result.treatment.kin
    assert before > 0.9
    assert after < 0.1
    found = result.to_dict()["treatment"]
    assert found["evidence"]["kin"]["members"] >= 20
    assert 7 not in result.treatment.corrected, "which was known"
    assert len([index for index in result.treatment.corrected if index < POISON]) >= 30
    images, truth = pictures(200, seed=1)
    truth = torch.from_numpy(truth)
    for one, least, most in ((model, 0.9, 1.0), (result.model, 0.0, 0.15)):
        obeys = (one(as_inputs(images[:, :, ::-1])).argmax(1) == 0)[truth > 0].float().mean()
        assert least <= obeys <= most
        assert (one(as_inputs(images)).argmax(1) == truth).float().mean() > 0.95
