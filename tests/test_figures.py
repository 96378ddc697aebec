"""Figures are drawn from result files, the same bytes each time; the toy example says what the paper says."""

from __future__ import annotations

import pytest
import torch
from benchmark import SWEEP, TINY, written
from PIL import Image

from potion.bench.figures import draw_all
from potion.bench.plan import plan
from potion.bench.results import Results
from potion.bench.suite import load_suite
from potion.bench.toy import norms_and_importances
from potion.bench.workshop import Workshop
from potion.runtime import generator_for


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    runs = plan(load_suite(written(folder, TINY.replace("seeds = [0, 1]", "seeds = [1]") + SWEEP)))
    workshop, found = Workshop(folder / "models", device="cpu"), Results.of(folder, runs)
    for run in runs:
        found.write(run, workshop.perform(run))
    return Results.of(folder, runs)


def test_everything_is_drawn_twice_the_same(results, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    names = draw_all([results], tmp_path / "one")
    assert names == [
        "attacks", "importance-toy", "tiny", "tiny-rho-xlf-step-1.1", "tiny-rho-xlf-step-2", "tiny-times-m100",
        "tiny-tradeoff",
    ]  # fmt: skip
    draw_all([results], tmp_path / "two")
    for name in names:
        for kind in ("png", "svg"):
            one, two = ((tmp_path / folder / f"{name}.{kind}").read_bytes() for folder in ("one", "two"))
            assert one == two, name
        with Image.open(tmp_path / "one" / f"{name}.png") as picture:
            assert picture.width > 600
            assert len(picture.convert("RGB").getcolors(10**6)) > 20, "something is drawn"


def test_without_results_only_what_needs_none_is_drawn(tmp_path):
    empty = Results.of(tmp_path / "nowhere", plan(load_suite("smoke")))
    assert draw_all([empty], tmp_path) == ["attacks", "importance-toy"]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
def test_the_toy_importances_are_gradients_of_the_norm(exponent):
    norms, importances = norms_and_importances(exponent, samples=50)
    f = torch.rand(50, 10, generator=generator_for("toy", 0), dtype=torch.float64)
    f.requires_grad_()
    powers = f.norm(dim=1) ** exponent
    powers.sum().backward()
    scaled = [(each - each.min()) / (each.max() - each.min()) for each in (powers.detach(), f.grad.abs().flatten())]
    torch.testing.assert_close(norms, scaled[0])
    torch.testing.assert_close(importances, scaled[1])


def test_squaring_spreads_the_norm_towards_zero():
    tails = {w: float(norms_and_importances(w)[0].quantile(0.05)) for w in (0.5, 1.0, 2.0, 3.0)}
    assert tails[0.5] > tails[1.0] > tails[2.0] > tails[3.0]
