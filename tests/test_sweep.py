"""A sweep reads from one search what other settings would have found: it must be what they do find."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from benchmark import SWEEP, TINY, written

from potion.bench.plan import plan
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.search import PTN

SCORES = ("clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("models"), device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    suite = load_suite(written(tmp_path_factory.mktemp("suite"), TINY + SWEEP))
    return next(run for run in plan(suite) if run.path.endswith("f50/xlf-s1.json"))


@pytest.fixture(scope="module")
def record(workshop, run):
    return workshop.perform(run)


@pytest.mark.parametrize("rho", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("step", [1.1, 2.0])
def test_every_point_is_what_a_search_of_its_own_finds(workshop, run, record, rho, step):
    alone = workshop.perform(replace(run, sweep=None, search=PTN(rho=rho, step=step, max_steps=20_000)))
    (point,) = [each for each in record["points"] if (each["rho"], each["step"]) == (rho, step)]
    assert point["status"] == alone["status"]
    assert point["steps"] == alone["steps"]
    assert point["chosen"] == alone["chosen"]
    assert {key: point[key] for key in SCORES} == {key: alone[key] for key in SCORES}
    halved = workshop.perform(
        replace(run, sweep=None, search=PTN(rho=rho, step=step, max_steps=20_000, strategy="bisect"))
    )
    assert point["bisect"] == {"steps": halved["steps"], "chosen": halved["chosen"]}


def test_the_run_itself_is_one_of_the_points(record):
    (point,) = [each for each in record["points"] if (each["rho"], each["step"]) == (0.2, 1.1)]
    assert {key: point[key] for key in (*SCORES, "steps", "chosen")} == {
        key: record[key] for key in (*SCORES, "steps", "chosen")
    }


def test_the_curve_goes_from_the_start_to_far_beyond_the_stop(record):
    curve = record["curve"]
    assert len(curve) == 3
    assert curve[0]["s"] == pytest.approx(record["trace"][0]["s"])
    assert curve[-1]["s"] == pytest.approx(100 * record["trace"][-1]["s"])
    assert [point["weights"] for point in curve] == sorted(point["weights"] for point in curve)


def test_performing_a_run_leaves_the_random_state_alone(workshop, run):
    state = torch.get_rng_state()
    workshop.perform(run)
    assert torch.equal(torch.get_rng_state(), state)
