"""Where the clean samples' middle is, who is out of place, and how many mistakes that makes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potion.antidote.outliers import better_half, clean_middle, farther_half, lower, mistaken, out_of_place


def normal(count, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_what_is_out_of_place_lies_far_below_the_middle_of_its_own_label():
    generator = torch.Generator().manual_seed(0)
    clean, poison = torch.randn(1000, generator=generator), torch.randn(100, generator=generator) - 8
    values = torch.cat([clean, poison, 50 + torch.randn(500, generator=generator)]).double()
    labels = torch.tensor([0] * 1100 + [1] * 500)
    flags = out_of_place(values, labels)
    assert flags[1000:1100].all()
    assert int(flags[:1000].sum()) <= 20
    assert int(flags[1100:].sum()) <= 10


@pytest.mark.parametrize("poison", [0, 10, 100, 1000, 2500])
def test_the_middle_is_that_of_the_clean_samples_however_many_are_poisoned(poison):
    values = torch.cat([5 + normal(1000), normal(poison, seed=1) - 7])
    middle, high = clean_middle(values)
    assert float(middle) == pytest.approx(5, abs=0.2)
    assert float(high) == pytest.approx(5 + 2.33, abs=0.5)
    flags = out_of_place(values, torch.zeros(len(values)))
    assert flags[1000:].all()
    assert int(flags[:1000].sum()) <= 25
    better = better_half(values, torch.zeros(len(values)))
    assert not better[1000:].any()
    assert 450 <= int(better.sum()) <= 550


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_a_middle_is_found_in_anything(values):
    given_values = torch.tensor(values, dtype=torch.float64)
    middle, high = clean_middle(given_values)
    assert min(values) <= middle <= high <= max(values)
    assert ((mistaken(given_values) >= 0) & (mistaken(given_values) <= 1)).all()


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 2), st.booleans()), min_size=1, max_size=20))
def test_the_farther_half_is_the_lower_one_of_those_asked_for_in_each_label(samples):
    values, labels, some = (torch.tensor(column) for column in zip(*samples, strict=True))
    flags = farther_half(values.double(), labels, some.bool()).tolist()
    for (value, label, asked), flag in zip(samples, flags, strict=True):
        ordered = sorted(v for v, other, chosen in samples if chosen and other == label)
        middle = [ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]] if ordered else [0]
        assert flag == (asked and 2 * value <= sum(middle))


def test_how_many_mistakes_is_told_by_those_that_rose():
    fell = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 9.0, 10.0], dtype=torch.float64) + 3
    away = fell + clean_middle(-fell)[0]
    literal = []
    for mine in away:
        risen = sum(float(2 * -other >= mine) for other in away if other < 0)
        fallen = sum(float(other >= mine) for other in away if other > 0)
        literal.append(min(1.0, (1 + risen) / fallen) if mine > 0 else 1.0)
    expected = [min(literal[k] for k in range(9) if away[k] <= away[place]) for place in range(9)]
    assert mistaken(fell).tolist() == pytest.approx(expected)
    assert mistaken(fell)[-1] == 0.5, "one of the two, for all that is known"
    generator = torch.Generator().manual_seed(0)
    values = torch.cat([torch.randn(2000, generator=generator), 12 + torch.randn(200, generator=generator)]).double()
    assert (mistaken(values)[2000:] <= 0.05).all()
    assert int((mistaken(values)[:2000] <= 0.05).sum()) <= 10
    assert int((mistaken(values[:2000]) <= 0.05).sum()) == 0, "where there is no poison, none is found"


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.lists(st.integers(-5, 5), min_size=1, max_size=12))
def test_lower_counts_pairs(some, others):
    pairs = sum((a < b) + (a == b) / 2 for a in some for b in others)
    n, m = len(some), len(others)
    expected = (pairs - n * m / 2) / (n * m * (n + m + 1) / 12) ** 0.5
    found = lower(torch.tensor(some, dtype=torch.float64), torch.tensor(others, dtype=torch.float64))
    assert found == pytest.approx(expected)


def test_samples_drawn_at_random_are_not_lower():
    far = [lower(normal(20, seed=seed), normal(1000, seed=1000 + seed)) for seed in range(200)]
    assert torch.tensor(far).std() == pytest.approx(1, abs=0.15)
    assert sum(z >= 3 for z in far) <= 2
    assert lower(normal(20) - 1.5, normal(1000, seed=1)) > 4
