"""Mixtures with other images tell who carries a trigger."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset
from wards import said, ward_of

import potion
from potion.antidote.carriers import LOST, Carriers, steadiness
from potion.antidote.settings import Antidote
from potion.antidote.verdict import Verdict, carriers_in
from potion.batches import labels_of
from potion.embedded import embedded_model

CPU = torch.device("cpu")


def test_steadiness_is_the_margin_that_all_but_a_tenth_of_the_mixtures_reach():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).eval()
    images, labels, others = torch.rand(7, 3, 2, 2), torch.tensor([0, 1, 2, 3, 0, 1, 2]), torch.rand(5, 3, 2, 2)
    found = steadiness(model, TensorDataset(images, labels), [6, 0, 3], others, batch_size=2)
    for row, index in enumerate([6, 0, 3]):
        margins = []
        for other in others:
            scores = model(((images[index] + other) / 2)[None])[0].double().tolist()
            own = scores.pop(int(labels[index]))
            margins.append(own - max(scores))
        low, high = sorted(margins)[:2]
        assert float(found[row]) == pytest.approx(low + LOST * 4 * (high - low), abs=1e-5)  # the quantile of five


def test_an_image_with_nan_that_spoils_the_teaching_is_told_in_one_sentence():
    torch.manual_seed(0)
    images, model = torch.rand(200, 3, 8, 8), nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    labels = model(images).argmax(1)  # a model that does not know its data is left alone before anything is taught
    images[3] = torch.nan
    with pytest.raises(ValueError, match="scores of training samples are NaN or inf"):
        potion.heal(model, TensorDataset(images, labels), [0], "antidote", device="cpu", progress=False)


NOBODY = torch.zeros(0, dtype=torch.float64)


def samples():
    """Two labels: clean samples about -5, and 60 carriers of label 1 about +5."""
    generator = torch.Generator().manual_seed(0)
    steady = torch.randn(1060, generator=generator, dtype=torch.float64) - 5
    steady[1000:] += 10
    return steady, torch.tensor([0, 1] * 500 + [1] * 60)


def test_carriers_are_steadier_than_clean_samples_of_their_label_if_some_of_the_poison_is():
    steady, labels = samples()
    poison = torch.zeros(1060, dtype=torch.bool)
    poison[[0, 2, 4, 6, 8, 1001, 1011, 1021, 1031]] = True
    found = Carriers.among(steady, labels, poison, NOBODY)
    assert found.carries[1000:].all()
    assert int(found.carries[:1000].sum()) <= 15
    assert found.may[labels == 0].all(), "what is taken for poison with label 0 does not carry: nothing is said of it"
    assert not found.carries[labels == 0].any()
    assert 200 <= int(found.may[labels == 1].sum()) - 60 <= 300, "half of the clean ones lie below their middle"
    assert found.may[found.carries].all()


def test_trusted_samples_show_how_steady_a_clean_one_can_be():
    generator = torch.Generator().manual_seed(0)
    clean, trusted = (torch.rand(1000, generator=generator, dtype=torch.float64).log().neg() * 4 for _ in range(2))
    steady = torch.cat([clean, torch.full((60,), 30.0, dtype=torch.float64)])  # clean ones are far steadier than alike
    labels, poison = torch.zeros(1060, dtype=torch.long), torch.arange(1060) >= 1050
    alone, beside = (Carriers.among(steady, labels, poison, some) for some in (NOBODY, trusted))
    assert int(alone.carries[:1000].sum()) > 50
    assert int(beside.carries[:1000].sum()) <= 20
    assert beside.carries[1000:].all()
    assert torch.equal(alone.may, beside.may)


def test_where_poison_is_not_steadier_than_the_rest_nobody_carries_and_all_may():
    steady, labels = samples()
    hard = torch.zeros(1060, dtype=torch.bool)
    hard[steady[:1000].argsort()[:50]] = True  # hard clean samples that a lesson has put out of place
    for poison in (hard, torch.zeros(1060, dtype=torch.bool), torch.ones(1060, dtype=torch.bool)):
        found = Carriers.among(steady, labels, poison, NOBODY)
        assert not found.carries.any()
        assert found.may.all()


def test_where_the_limit_leaves_no_carrier_mixtures_say_nothing_of_the_label():
    generator = torch.Generator().manual_seed(0)
    steady, labels = torch.randn(1000, generator=generator, dtype=torch.float64), torch.zeros(1000, dtype=torch.long)
    poison = torch.zeros(1000, dtype=torch.bool)
    poison[steady.argsort()[600:640]] = True  # steadier than the rest on the whole, but none of them very much
    found = Carriers.among(steady, labels, poison, torch.full((9,), 100.0, dtype=torch.float64))
    assert not found.carries.any()
    assert found.may.all()


@pytest.fixture(scope="module")
def rows(embedded):
    """A part of the embedded training set: 40 of the poisoned samples first, then clean ones."""
    poison = embedded.poison()
    return poison[:40] + [row for row in range(len(embedded.train)) if row not in set(poison)][:1960]


def test_the_poisoned_model_alone_tells_who_carries(embedded, rows):
    data, poison = Subset(embedded.train_set().plain(), rows), set(range(40))
    ward = ward_of(embedded_model("victim"), data, [0])
    some = torch.tensor([index in range(1, 9) for index in ward.quarantined])
    found = carriers_in(ward, some)
    carriers = ward.named(found.carries)
    assert len(poison.intersection(carriers)) >= 0.95 * (len(poison) - 1)
    assert len(poison.intersection(carriers)) >= 0.95 * len(carriers)
    rest = [index for index in ward.quarantined if index not in set(carriers)]
    placed = torch.arange(len(ward.quarantined), dtype=torch.float64)
    sources = said(ward, placed).suspicious(found, {rest[7], rest[3]})
    steady = dict(zip(ward.quarantined, found.steady.tolist(), strict=True))
    first, second, *others = sorted(carriers, key=lambda index: -steady[index])
    assert sources == [rest[3], first, rest[7], second, *others]
    verdict = Verdict.by(ward.victim, ward)
    assert verdict.better(found)
    assert not set(verdict.better(found)).intersection(carriers)
    assert not set(verdict.taken_back(found)).intersection(carriers)


def test_the_truth_is_told_about_carriers_and_the_farther_half_of_the_rest(embedded):
    data = Subset(embedded.train, range(300))
    ward = ward_of(embedded_model("retrain_clean"), data, [0])
    count = len(ward.quarantined)
    placed, flags = torch.arange(count, dtype=torch.float64), torch.zeros(4, count, dtype=torch.bool)
    poison, carries, may, far = flags
    poison[:10], carries[8], carries[15], may[1:], far[1:5] = True, True, True, True, True
    found = Carriers(steady=placed, carries=carries, may=may)
    far[5] = True  # the middle one of nine
    verdict = said(ward, placed, poison)
    assert torch.equal(verdict.clearest(found), far | (carries & poison))
    assert list(verdict.taught(found)) == ward.named(far | (carries & poison))
    assert list(verdict.named(found)) == ward.named(poison & may)
    assert not said(ward, placed).clearest(found).any()
    silent = Carriers(steady=placed, carries=torch.zeros_like(carries), may=may)
    assert torch.equal(verdict.clearest(silent), poison & may), "without carriers there is no half to spare"


def test_a_label_without_carriers_is_told_all_the_truth_though_another_has_some():
    labels = torch.tensor([0, 1, 2, 3] * 20)
    data = TensorDataset(torch.rand(80, 3, 8, 8, generator=torch.Generator().manual_seed(0)), labels)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    ward = ward_of(model, data, [0, 1])
    own = ward.claims(ward.quarantined)
    placed, poison = torch.arange(len(own), dtype=torch.float64), torch.ones(len(own), dtype=torch.bool)
    carries = torch.zeros_like(poison)
    carries[torch.nonzero(own == 1).flatten()[-1]] = True  # of label 1 alone, and the nearest of it
    told = said(ward, placed, poison).clearest(Carriers(steady=placed, carries=carries, may=poison))
    assert told[own == 0].all()
    assert told[own == 1].tolist() == [True] * 10 + [False] * 8 + [True]


def test_ordinary_samples_of_a_clean_model_find_no_carriers(embedded):
    data = Subset(embedded.train, range(2000))
    ordinary = torch.nonzero(labels_of(data) == 3).flatten().tolist()
    ward = ward_of(embedded_model("retrain_clean"), data, ordinary[:5])
    placed = Verdict.by(ward.victim, ward).placed
    found = carriers_in(ward, placed <= placed.sort().values[20])
    assert not found.carries.any()
    assert found.may.all()
    rows = torch.arange(len(ward.quarantined), dtype=torch.float64)
    sources = said(ward, rows).suspicious(found, {ward.quarantined[4], ward.quarantined[2]})
    assert sources == [ward.quarantined[place] for place in (2, 4)]


def test_without_the_setting_nothing_is_said(embedded):
    data = Subset(embedded.train, range(500))
    ward = ward_of(embedded_model("retrain_clean"), data, [0, 1])
    ward.settings = Antidote(carriers=False)
    found = carriers_in(ward, torch.ones(len(ward.quarantined), dtype=torch.bool))
    assert found.may.all()
    assert not found.carries.any()
