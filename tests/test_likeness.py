"""Likeness: what is like known poison to a model, and what is surely none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import Subset
from wards import said, ward_of

from potion.antidote.carriers import Carriers
from potion.antidote.course import _diagnosed
from potion.antidote.features import RIDGE, Spread
from potion.antidote.likeness import Likened, likeness, resembling, surely_clean
from potion.antidote.settings import Antidote
from potion.antidote.verdict import Verdict
from potion.embedded import embedded_model

POISON = 40


@pytest.fixture(scope="module")
def ward(embedded):
    """The embedded victim and a part of its data, poison first, of which one sample is known."""
    poison = embedded.poison()
    rows = poison[:POISON] + [row for row in range(len(embedded.train)) if row not in set(poison)][:1960]
    data = Subset(embedded.train_set().plain(), rows)
    return ward_of(embedded_model("victim"), data, [0])


def test_likeness_is_the_largest_cosine_with_a_known_sample_in_units_of_ordinary_ones():
    generator = torch.Generator().manual_seed(0)
    seen, ordinary = (torch.randn(count, 4, dtype=torch.float64, generator=generator) for count in (9, 30))
    ordinary[:, 1] += 3 * ordinary[:, 0]  # they differ in one direction above all
    known = torch.tensor([False, True, False, False, True, False, False, False, False])
    covariance = np.cov(ordinary.numpy().T, bias=True)
    values, vectors = np.linalg.eigh(covariance + RIDGE * np.trace(covariance) / 4 * np.eye(4))
    units = vectors @ np.diag(values**-0.5) @ vectors.T
    cosine = lambda a, b: sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)  # noqa: E731

    def largest(middle):
        away = (seen.numpy() - middle) @ units
        return [max(cosine(row, away[1]), cosine(row, away[4])) for row in away]

    clean = np.argsort(largest(ordinary.numpy().mean(0)))[:5]  # as many as other labels have
    expected = largest(np.median(seen.numpy()[clean], axis=0))
    assert likeness(seen, known, Spread.of(ordinary), 5).tolist() == pytest.approx(expected)


def test_known_samples_may_be_compared_with_each_other():
    generator = torch.Generator().manual_seed(1)
    seen, ordinary = (torch.randn(count, 4, dtype=torch.float64, generator=generator) for count in (700, 30))
    known, spread = torch.arange(700) >= 100, Spread.of(ordinary)  # more than are compared at once

    def alike(middle):
        points = spread.in_units(seen - middle)
        points = points / points.norm(dim=1, keepdim=True)
        cosines = points @ points[known].T
        cosines[torch.arange(100, 700), torch.arange(600)] = -1  # not with itself
        return cosines.amax(1)

    clean = alike(spread.middle).argsort()[:50]
    expected = alike(seen[clean].median(0).values)
    assert likeness(seen, known, spread, 50, beside=True).tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("poisoned", [20, 100, 400])
def test_poison_may_be_most_of_its_label(poisoned):
    generator = torch.Generator().manual_seed(0)
    seen, ordinary = (
        0.3 * torch.randn(count, 8, dtype=torch.float64, generator=generator) for count in (100 + poisoned, 500)
    )
    seen[:, 0] += 2  # what the label has in common
    seen[100:, 1] += 2  # what poison has
    known = torch.arange(len(seen)) == 100
    alike = likeness(seen, known, Spread.of(ordinary), 100)
    assert alike.argsort()[:50].max() < 100


def test_a_sample_without_company_is_like_nobody():
    alone, alike = torch.ones(1, 4, dtype=torch.float64), torch.zeros(5, 4, dtype=torch.float64)
    assert likeness(alone, torch.tensor([True]), Spread.of(alike), 5).tolist() == [0.0]


def test_where_ordinary_samples_do_not_differ_the_plain_cosine_counts():
    seen = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    found = likeness(
        seen, torch.tensor([False, False, False, True, False]), Spread.of(torch.ones(6, 2, dtype=torch.float64)), 9
    )
    assert found.tolist() == pytest.approx([0, 0, 0, 1, 0.5**0.5])


def test_what_is_least_like_one_known_sample_is_no_poison(ward):
    clean = surely_clean(ward, Carriers.nobody(torch.zeros(len(ward.quarantined))))
    assert len(clean) == min(len(ward.quarantined), ward.usual) // 2
    assert sum(index < POISON for index in clean) <= 0.05 * POISON


def test_clean_is_what_is_least_like_the_known_and_the_farther_half_of_the_named(ward):
    count = len(ward.quarantined)
    placed = torch.arange(count, dtype=torch.float64)
    poison = torch.tensor([index < 10 for index in ward.quarantined])
    carries = torch.tensor([index in (11, 50) for index in ward.quarantined])
    verdict, carriers = said(ward, placed, poison), Carriers(steady=placed, carries=carries, may=~carries)
    named = [row for row in range(count) if poison[row]]
    lowest = torch.tensor([row in named[:5] for row in range(count)])
    alike = Likened(ward, lowest).alike.tolist()
    rest = sorted((row for row in range(count) if not poison[row] and not carries[row]), key=lambda row: alike[row])
    assert surely_clean(ward, carriers, verdict) == [
        ward.quarantined[row] for row in rest[: min(len(rest), ward.usual) // 2]
    ]


def test_to_be_like_named_poison_counts_too(ward):
    named = torch.tensor([index < 10 for index in ward.quarantined])
    assert torch.equal(Likened(ward, torch.zeros_like(named)).alike, Likened(ward).alike)
    assert Likened(ward, named).alike[: len(named)][named].tolist() == pytest.approx([1.0] * int(named.sum()))


def test_who_was_shown_is_not_judged_and_stays(ward):
    """A model that has forgotten the label names many, but none of those that it was shown."""
    alone = Verdict.by(ward.victim, ward)
    told = alone.ward.taught(ward.trusted, {}, [], 0.5, "a lesson without the label")
    found = Verdict.by(told, ward)
    assert found.poison.any()
    shown = ward.named(found.poison)[:3]
    again = Verdict.by(told, ward, shown=shown)
    assert set(ward.named(again.poison)) == set(ward.named(found.poison)) - set(shown)
    steady = torch.zeros(len(ward.quarantined), dtype=torch.float64)
    silent = Carriers.nobody(steady)
    assert set(again.better(silent)) == set(found.better(silent)) | set(shown)
    carries = torch.tensor([index == shown[0] for index in ward.quarantined])
    without = again.better(Carriers(steady=steady, carries=carries, may=~carries))
    assert shown[0] not in without
    assert set(shown[1:]) < set(without)


def test_only_who_is_like_the_known_may_be_poison_where_these_are_many(embedded):
    poison = embedded.poison()[:80]
    rows = poison + [row for row in range(len(embedded.train)) if row not in set(poison)][:1960]
    data, victim = Subset(embedded.train_set().plain(), rows), embedded_model("victim")
    many = ward_of(victim, data, list(range(40)), settings=Antidote(quarantine_epochs=0.05))
    may, hidden = resembling(many), torch.tensor([index < 80 for index in many.quarantined])
    assert may[hidden].double().mean() >= 0.75, "some of it has its own class for a label"
    assert may[~hidden].double().mean() <= 0.15
    assert resembling(ward_of(victim, data, list(range(31)))).all(), "too few to tell"
    found = _diagnosed(many, [], Verdict.by(many.victim, many))
    assert not (found.carriers.may & ~may).any(), "the quarantine asks"
    label = int(many.claims([0]))
    ordinary = [index for index in range(80, len(rows)) if data[index][1] == label][:40]
    assert resembling(ward_of(victim, data, ordinary)).all(), "they are not like each other"
    every = [index for index in range(len(rows)) if data[index][1] == label]
    assert resembling(ward_of(victim, data, every)).tolist() == [], "nobody is left to ask about"


def test_who_is_not_like_the_known_is_neither_carrier_nor_poison(ward):
    count = len(ward.quarantined)
    some, every = torch.arange(count) % 2 == 0, torch.ones(count, dtype=torch.bool)
    carriers = Carriers(steady=torch.zeros(count), carries=every, may=every).only(some)
    assert torch.equal(carriers.carries, some)
    assert torch.equal(said(ward, torch.zeros(count, dtype=torch.float64), every).credible(carriers), some)
