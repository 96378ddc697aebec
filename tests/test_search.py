"""Eq. (7) and Alg. 1 against numpy and the oracle."""

from __future__ import annotations

import copy
import math

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_dampening import random_importances
from torch import nn

import potion
from potion.cursor import Cursor
from potion.ranking import LARGEST_S, Ranking, percentile_of
from potion.search import search
from potion.types import Look

positive = st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.integers(1, 4).map(float))


@given(
    pairs=arrays(np.float64, st.tuples(st.integers(1, 60), st.just(2)), elements=positive),
    s=st.one_of(st.just(0.0), st.floats(1e-9, 1e3), st.floats(1e3, 1e60)),
)
@settings(max_examples=300, deadline=None)
def test_alpha_is_numpys_percentile(pairs, s):
    retain, forget = ({"w": torch.from_numpy(pairs[:, k].copy())} for k in (0, 1))
    if not (pairs[:, 0] > 0).any():
        with pytest.raises(ValueError, match="no weight has a finite importance ratio"):
            potion.alpha_at(retain, forget, s)
        return
    assert potion.alpha_at(retain, forget, s) == pytest.approx(oracle.alpha(retain, forget, s), rel=1e-12)


def test_alpha_spans_several_parameters_by_name():
    model = oracle.network("conv")
    retain, forget = random_importances(model, 1), random_importances(model, 2)
    shuffled = dict(reversed(forget.items()))
    for s in (1e-4, 0.004, 0.2, 5.0):
        assert potion.alpha_at(retain, shuffled, s) == pytest.approx(oracle.alpha(retain, forget, s), rel=1e-12)


def test_percentiles_stay_in_range():
    assert percentile_of(0) == 100
    assert percentile_of(0.01) == pytest.approx(100 - math.log(2))
    assert percentile_of(LARGEST_S) == pytest.approx(0, abs=1e-9)
    assert percentile_of(1e300) == 0
    for bad in (-1e-9, float("nan")):
        with pytest.raises(ValueError, match="s must be"):
            percentile_of(bad)


@given(values=arrays(np.float64, st.integers(1, 50), elements=st.sampled_from([0, 1, 2, 2.5, np.inf, np.nan])))
@settings(deadline=None)
def test_a_ranking_counts_what_is_above(values):
    if not np.isfinite(values).any():
        return
    ranking = Ranking(torch.from_numpy(values))
    for alpha in (7.0, 2.5, 2.0, 1.5, 0.0):
        assert ranking.count_above(alpha) == (values > alpha).sum()
        chosen = ranking.positions[: ranking.count_above(alpha)].tolist()
        assert sorted(chosen) == np.flatnonzero(values > alpha).tolist()


def test_a_ranking_sorts_no_more_than_it_must():
    ranking = Ranking(torch.rand(100_000))
    ranking.count_above(ranking.alpha(0.001))
    assert ranking.positions.numel() < 10_000


@pytest.mark.parametrize("network", oracle.NETWORKS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_cursor_is_dampening_without_the_detours(network, layout):
    """Forward, backward, far and near: the weights are always those of the patch, to the bit."""
    model = oracle.network(network)
    if network == "conv":
        model = model.to(memory_format=layout)
    retain, forget = random_importances(model, 1), random_importances(model, 2)
    moving = copy.deepcopy(model)
    cursor = Cursor(moving, retain, forget)
    for alpha in (1e9, 4.0, 2.0, 3.0, 0.5, 2.0, 0.0, float("inf"), 1.0):
        expected = copy.deepcopy(model)
        patch = potion.dampen(model, retain, forget, alpha)
        patch.apply(expected)
        assert cursor.move_to(alpha) == patch.count
        for (name, found), wanted in zip(moving.named_parameters(), expected.parameters(), strict=True):
            assert torch.equal(found, wanted), (name, alpha)
            assert found.stride() == wanted.stride()


def test_a_cursor_handles_types_apart():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4).to(torch.bfloat16), nn.Linear(4, 4).double())
    retain, forget = random_importances(model, 1), random_importances(model, 2)
    moving = copy.deepcopy(model)
    cursor = Cursor(moving, retain, forget)
    for alpha in (3.0, 1.0, 2.0):
        expected = copy.deepcopy(model)
        potion.dampen(model, retain, forget, alpha).apply(expected)
        cursor.move_to(alpha)
        for found, wanted in zip(moving.parameters(), expected.parameters(), strict=True):
            assert torch.equal(found, wanted)


def scenario(network, seed):
    """A network with real importances of some data, and 'poison' whose labels are what the network says."""
    model = oracle.network(network, seed)
    x, y = oracle.data(40, seed + 100)
    poison = x[:9] + 1
    with torch.no_grad():
        labels = model(poison).argmax(1)
    retain = potion.importances(model, oracle.in_batches(x, y, 8))
    forget = potion.importances(model, [(poison, labels)])
    return model, retain, forget, poison, labels


def run(model, retain, forget, x, y, settings):
    working = copy.deepcopy(model)

    @torch.no_grad()
    def look():
        return Look((working(x).argmax(1) == y).float().mean().item())

    return search(working, retain, forget, look, before=look(), share=0.01, settings=settings)


@pytest.mark.parametrize("network", oracle.NETWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_sequential_search_is_the_algorithm(network, seed, rho):
    model, retain, forget, x, y = scenario(network, seed)
    ptn = potion.PTN(rho=rho, start=10.0, step=3.0)  # few weights, so large strides
    found = run(model, retain, forget, x, y, ptn)
    expected, trace = oracle.ptn(model, retain, forget, x, y, rho=rho, start=ptn.start, step=ptn.step, share=0.01)
    assert (found.status is potion.Status.HEALED) == (expected is not None)
    assert len(found.trace) == len(trace)
    for step, (s, alpha, selected, accuracy) in zip(found.trace, trace, strict=True):
        assert (step.s, step.alpha) == (pytest.approx(s), pytest.approx(alpha))
        assert (step.selected, step.known_accuracy) == (selected, pytest.approx(accuracy))


@given(
    ratio=arrays(np.float64, st.integers(20, 200), elements=st.floats(0.5, 100)),
    drops=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    rho=st.sampled_from([0.0, 0.2, 0.75]),
    step=st.sampled_from([1.1, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_bisection_agrees_wherever_the_curve_is_monotone(ratio, drops, rho, step):
    """The accuracy is a falling function of how many weights have changed."""
    size = len(ratio)
    levels = sorted([1.0, *drops], reverse=True)

    def run_with(strategy):
        model = nn.Linear(size, 1, bias=False)
        nn.init.ones_(model.weight)

        def look():
            changed = int((model.weight != 1).sum())
            return Look(levels[changed * (len(levels) - 1) // size])

        retain = {"weight": torch.ones(1, size)}
        forget = {"weight": torch.from_numpy(ratio).float()[None]}
        chosen = potion.PTN(rho=rho, step=step, strategy=strategy)
        return search(model, retain, forget, look, before=Look(1.0), share=0.01, settings=chosen)

    slow, fast = run_with("sequential"), run_with("bisect")
    assert (fast.status, fast.chosen) == (slow.status, slow.chosen)
    if slow.chosen is not None:
        assert len(fast.trace) <= 2 * math.log2(len(slow.trace) + 1) + 2
    assert [step.s for step in fast.trace] == sorted(step.s for step in fast.trace)


def constant(model, retain, forget, accuracy, **settings):
    chosen = potion.PTN(**settings)
    return search(model, retain, forget, lambda: Look(accuracy), before=Look(1.0), share=0.01, settings=chosen)


def watched(looks, **settings):
    """A search that sees these looks one after the other, the first one before it begins."""
    model = nn.Linear(4, 1000, bias=False)
    retain = {"weight": torch.ones(1000, 4)}
    forget = {"weight": torch.arange(4000).view(1000, 4) + 2.0}
    before, *rest = [Look(*each) for each in looks]
    return search(
        model, retain, forget, iter(rest).__next__, before=before, share=0.01, settings=potion.PTN(**settings)
    )


def test_the_guard_gives_up_rather_than_lose_more():
    looks = [(1.0, 0.90, 1.0), (0.8, 0.90, 0.8), (0.5, 0.87, 0.5), (0.1, 0.80, 0.1), (0.0, 0.1, 0.0)]
    free = watched(looks)
    assert (free.status, free.chosen.trusted_accuracy) == (potion.Status.HEALED, 0.80)
    assert watched(looks, guard=10).chosen == free.chosen
    guarded = watched(looks, guard=2)
    assert (guarded.status, guarded.chosen, len(guarded.trace)) == (potion.Status.GUARDED, None, 2)
    at_once = [(1.0, 0.90, 1.0), (0.1, 0.80, 0.1)]
    assert watched(at_once, guard=2).status is potion.Status.GUARDED
    assert watched(at_once, guard=2, strategy="bisect").status is potion.Status.GUARDED


def test_trusted_samples_can_choose_the_point():
    looks = [(1.0, 0.90, 1.0), (0.6, 0.90, 0.6), (0.3, 0.89, 0.4), (0.2, 0.88, 0.3), (0.1, 0.81, 0.25), (0.0, 0.7, 0.2)]
    found = watched(looks, stop="trusted")
    assert (found.status, found.chosen.known_accuracy, len(found.trace)) == (potion.Status.HEALED, 0.2, 5)
    assert watched(looks, stop="trusted", guard=1).chosen.known_accuracy == 0.3
    stubborn = [(1.0, 0.90, 1.0), (0.9, 0.90, 0.9), (0.8, 0.7, 0.8)]
    assert watched(stubborn, stop="trusted").chosen is None


@pytest.mark.parametrize("strategy", ["sequential", "bisect"])
def test_how_a_search_ends(strategy):
    model = oracle.network("mlp")
    ones = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    growing = torch.arange(1, 1 + sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    twos = {
        name: 2 + part.view(p.shape)
        for (name, p), part in zip(
            model.named_parameters(), growing.split([p.numel() for p in model.parameters()]), strict=True
        )
    }
    # All ratios 1: the first threshold is 1 already and nothing can change.
    assert constant(model, ones, ones, 1.0, strategy=strategy).status is potion.Status.SATURATED
    # All ratios above 2: never saturated, so every weight ends up selected, or the steps are used up.
    whole = constant(model, ones, twos, 1.0, strategy=strategy, step=4.0)
    assert whole.status is potion.Status.EXHAUSTED
    assert whole.trace[-1].alpha == 3
    short = constant(model, ones, twos, 1.0, strategy=strategy, max_steps=7)
    assert short.status is potion.Status.EXHAUSTED
    assert len(short.trace) <= 7
    assert constant(model, ones, twos, 0.2, strategy=strategy).status is potion.Status.HEALED
    assert constant(model, ones, twos, 0.2, strategy=strategy).chosen.s == pytest.approx(0.01 / 25)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"guard": -1}, "guard must be"), ({"guard": "2"}, "guard must be"), ({"stop": "now"}, "stop must be one of"),
        ({"stop": "trusted", "strategy": "bisect"}, "needs strategy='sequential'"),
        ({"rho": -0.1}, "rho must be"), ({"rho": 1.0}, "rho must be"), ({"rho": float("nan")}, "rho must be"),
        ({"start": 0.0}, "start must be"), ({"start": float("inf")}, "start must be"),
        ({"step": 1.0}, "step must be above 1"), ({"step": float("nan")}, "step must be"),
        ({"strategy": "random"}, "one of sequential, bisect, got 'random'"), ({"max_steps": 0}, "max_steps must be"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        potion.PTN(**bad)
