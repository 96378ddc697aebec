"""One test over all methods, and what tells them apart."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re

import pytest
import torch

import potion
from potion.antidote.localise import Search
from potion.attacks import BadNet
from potion.baselines import METHODS, Problem
from potion.baselines.distillation import divergence
from potion.data import ImageSet, PoisonedSet, View
from potion.embedded import new_model
from potion.fingerprint import fingerprint
from potion.metrics import accuracy
from potion.training import Recipe

ssd_grid_module = importlib.import_module("potion.baselines.ssd_grid")
SEARCHING = {"xlf", "lf", "ssd", "xlf_guarded", "xlf_trusted", "antidote"}
SHORT = potion.Antidote(
    sources=1, more=0, rounds=1, epochs=1.0, quarantine_epochs=1.0, search=Search(steps=20, images=16, looked_at=16)
)


@pytest.fixture(scope="module")
def problem(embedded, victim):
    """The embedded victim with 480 of its training samples, 40 of them poisoned, 16 known."""
    poison = embedded.poison()[:40]
    others = [index for index in range(1000) if index not in set(embedded.poison())][:440]
    rows = torch.tensor(poison + others)
    base = ImageSet(embedded.train.images[rows], embedded.train.labels[rows], embedded.train.classes)
    data = PoisonedSet(base, BadNet(), range(40), view=View(padding=4, flip=True))
    return Problem(
        model=victim,
        train_set=data,
        plain_set=data.plain(),
        known=list(range(16)),
        recipe=Recipe(iterations=4, batch_size=120, lr=0.01),
        new_model=new_model,
        batch_size=120,
        antidote=SHORT,
    )


def test_methods_without_ptn_see_the_importances_that_it_sees(problem):
    healed = potion.heal(
        problem.model,
        problem.train_set,
        problem.known,
        "ssd",
        batch_size=120,
        retain_share=1,
        device="cpu",
        progress=False,
    )
    model = problem.copied()
    for seen, ours in (
        (healed.retain, problem.retain_importances(model, problem.retained, "ssd")),
        (healed.forget, problem.forget_importances(model, "ssd")),
    ):
        assert seen.keys() == ours.keys()
        assert all(torch.equal(seen[name], ours[name]) for name in seen)


@pytest.mark.parametrize("name", METHODS)
def test_every_method(problem, name):
    before, state = fingerprint(problem.model), torch.get_rng_state()
    one, two = METHODS[name](problem), METHODS[name](problem)
    assert fingerprint(problem.model) == before, "the input model is left alone"
    assert torch.equal(torch.get_rng_state(), state), "and so is the caller's randomness"
    assert fingerprint(one.model) == fingerprint(two.model), "same seed, same result"
    assert all(torch.isfinite(p).all() for p in one.model.parameters())
    assert not one.model.training
    assert (one.status is not None) == (name in SEARCHING)
    assert {key: p.shape for key, p in one.model.named_parameters()} == {
        key: p.shape for key, p in problem.model.named_parameters()
    }
    if name not in ("none", *SEARCHING):
        assert fingerprint(one.model) != before, "the method did something"


def test_none_does_nothing_and_xlf_heals(problem):
    assert fingerprint(METHODS["none"](problem).model) == fingerprint(problem.model)
    repair = METHODS["xlf"](problem)
    assert repair.status is potion.Status.HEALED
    assert len(repair.result.trace) >= 1


def test_the_grid_is_facts_13_and_keeps_the_best(problem):
    """All 50 settings of FACTS 13, typed again, are judged on S_f and held-out samples; the model is the best of them."""
    repair = METHODS["ssd_grid"](problem)
    held_out, rest = ssd_grid_module._split(problem.retained, problem.seed)
    assert not set(held_out) & set(rest) | set(held_out) & set(problem.known)
    assert len(held_out) == round(0.1 * len(problem.retained))
    known, validation = (torch.utils.data.Subset(problem.plain_set, rows) for rows in (problem.known, held_out))
    model = problem.copied()
    retain, forget = problem.retain_importances(model, rest, "ssd"), problem.forget_importances(model, "ssd")
    before, scores = accuracy(problem.model, known), {}
    for alpha in (0.1, 1, 10, 50, 100, 500, 1e3, 1e4, 1e5, 1e6):
        for multiple in (0.1, 0.5, 1, 5, 10):
            patch = potion.dampen(model, retain, forget, alpha, lam=multiple * alpha)
            patch.apply(model)
            scores[alpha, multiple * alpha] = (before - accuracy(model, known) + accuracy(model, validation)) / 2
            patch.revert(model)
    best = max(scores, key=scores.get)  # the first of equal ones
    assert (repair.notes["alpha"], repair.notes["lambda"]) == pytest.approx(best)
    assert repair.notes["score"] == pytest.approx(scores[best])
    after = [accuracy(repair.model, each) for each in (known, validation)]
    assert [*repair.notes["known_accuracy"], repair.notes["validation_accuracy"]] == pytest.approx([before, *after])


def test_methods_that_train_never_see_the_known_poison(problem):
    """The known samples are made NaN: one look at them would ruin the weights."""

    class Ruined(PoisonedSet):
        def prepare(self, images, indices):
            inputs = super().prepare(images, indices)
            inputs[torch.isin(indices, torch.tensor(problem.known))] = float("nan")
            return inputs

    ruined = Ruined(problem.train_set.base, BadNet(), range(40))
    for name in ("retrain", "finetune"):
        repair = METHODS[name](dataclasses.replace(problem, train_set=ruined))
        assert all(torch.isfinite(p).all() for p in repair.model.parameters())


def test_the_divergence_is_the_kullback_leibler_divergence():
    student, teacher = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    for temperature in (1.0, 4.0):
        p, q = (logits / temperature for logits in (teacher, student))
        p, q = p.softmax(1), q.softmax(1)
        expected = (p * (p / q).log()).sum(1) * temperature**2
        torch.testing.assert_close(divergence(student, teacher, temperature).double(), expected, rtol=1e-4, atol=1e-5)
    assert divergence(teacher, teacher, 4.0).abs().max() < 1e-6


def test_the_grid_is_seeded_without_a_plain_view_too(problem):
    augmented = dataclasses.replace(problem, plain_set=None)
    torch.manual_seed(1)
    one = METHODS["ssd_grid"](augmented)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert fingerprint(METHODS["ssd_grid"](augmented).model) == fingerprint(one.model)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - SEARCHING - {"none"}))
def test_every_baseline_cites_its_source(name):
    assert re.search(r"\(.*(19|20)\d\d.*\)", inspect.getdoc(METHODS[name])), "a citation with its year"
