"""Suites: what they say, how mistakes in them are named, and the plan that they unroll into."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from benchmark import SWEEP, TINY, written

from potion.bench.plan import Run, plan, selected, sharded
from potion.bench.schema import SuiteError
from potion.bench.suite import load_suite, shipped_suites


def test_the_shipped_suites_are_the_paper():
    assert set(shipped_suites()) >= {
        "goel-cifar10", "goel-cifar100", "sensitivity-rho", "sensitivity-step", "timing", "label-switch", "smoke",
        *(f"vit-{data}-{attack}" for data in ("imagenette", "imagenet") for attack in ("badnet", "sine", "moving")),
    }  # fmt: skip
    cifar = plan(load_suite("goel-cifar10"))
    assert {run.poisoned for run in cifar} == {100, 500, 1000}
    assert {run.known for run in cifar if run.poisoned == 500} == {0, 1, *range(50, 501, 50)}
    assert cifar[0].recipe.iterations == 4000
    wide = plan(load_suite("goel-cifar100"))
    assert (wide[0].model.name, wide[0].recipe.iterations) == ("wide_resnet28x10", 6000)
    assert load_suite("sensitivity-rho").sweep.rho == (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75)
    assert load_suite("sensitivity-step").sweep.step == (1.01, 1.1, 2.0)
    assert load_suite("vit-imagenet-sine").epochs == 2
    assert load_suite("vit-imagenet-sine").data.streamed is None, "the data set's own default: streamed"


@pytest.mark.parametrize("name", shipped_suites())
def test_every_run_of_every_suite_comes_back_from_its_result_file(name):
    runs = plan(load_suite(name))
    assert len({run.path for run in runs}) == len(runs)
    assert len({run.key for run in runs}) == len(runs)
    for run in runs:
        again = Run.from_dict(json.loads(json.dumps(run.to_dict())), "file.json")
        assert again == run
        assert again.key == run.key


def test_the_methods_that_train_do_not_care_about_the_search(tmp_path):
    one = {run.path: run.key for run in plan(load_suite(written(tmp_path)))}
    two = {run.path: run.key for run in plan(load_suite(written(tmp_path, TINY + "\n[search]\nrho = 0.3\n")))}
    assert {path for path in one if one[path] != two[path]} == {path for path in one if "xlf" in path}


def test_a_new_setting_at_its_default_leaves_the_keys_of_old_results_alone(tmp_path):
    run = plan(load_suite(written(tmp_path)))[-1]
    assert replace(run, recipe=replace(run.recipe, momentum=0.8)).key != run.key
    explicit = written(tmp_path, TINY.replace("lr = 0.05", "lr = 0.05\nmomentum = 0.9"))
    assert plan(load_suite(explicit))[-1].key == run.key


def test_shards_split_the_plan_by_victims():
    runs = plan(load_suite("goel-cifar10"))
    shards = [sharded(runs, part, 4) for part in (1, 2, 3, 4)]
    assert sorted(run.path for shard in shards for run in shard) == sorted(run.path for run in runs)
    victims = [{run.victim for run in shard} for shard in shards]
    assert sum(map(len, victims)) == len(set.union(*victims)) == 9


def test_runs_are_chosen_by_method_scenario_or_name(tmp_path):
    runs = plan(load_suite(written(tmp_path)))
    assert {run.method for run in selected(runs, ["xlf", "assd"])} == {"xlf", "assd"}
    assert {run.known for run in selected(runs, ["badnet-m100-f5*"])} == {50}
    assert [run.path for run in selected(runs, ["badnet-m100-f1/xlf-s1"])] == ["tiny/badnet-m100-f1/xlf-s1.json"]
    with pytest.raises(SuiteError, match=r"--only scrub: no such run; it takes a method \(none, retrain, assd, xlf\)"):
        selected(runs, ["xlf", "scrub"])


def test_seeds_can_be_given_from_outside(tmp_path):
    assert {run.seed for run in plan(load_suite(written(tmp_path)), [7])} == {7}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lr = 0.05", "rate = 0.05", r"tiny.toml: training.rate: unknown key; known are iterations, "),
        ("lr = 0.05", "lrr = 0.05", r"tiny.toml: training.lrr: unknown key; did you mean lr\?"),
        ("lr = 0.05", 'lr = "fast"', r"tiny.toml: training.lr must be a number, got 'fast'"),
        ("lr = 0.05", "lr = -1", r"tiny.toml: training: lr must be positive"),
        ("iterations = 30", "iterations = 30\nepochs = 2", r"tiny.toml: training.epochs and training.iterations"),
        ("iterations = 30", "epochs = 0", r"tiny.toml: training.epochs must be a whole number of at least 1"),
        ('source = "fashion-mnist"', "", r"tiny.toml: data.source is missing"),
        ("limit = 400", "limit = true", r"tiny.toml: data.limit must be a whole number, got True"),
        ('name = "resnet9"', 'name = "resnet10"', r"tiny.toml: model.name must be one of resnet9, "),
        ("width = 4", "widht = 4", r"tiny.toml: model.widht: unknown key; did you mean width\?"),
        ('name = "badnet"', 'name = "badnets"', r"tiny.toml: attacks\[0\].name must be one of badnet, "),
        ("size = 8", "size = 8\nfrequency = 1", r"tiny.toml: attacks\[0\].frequency: unknown key"),
        ("size = 8", "size = 0", r"tiny.toml: attacks\[0\]: size must be at least 1 pixel, got 0"),
        ("poisoned = [100]", 'poisoned = ["1%"]', r"tiny.toml: attacks\[0\].poisoned must be whole numbers"),
        ('"xlf"]', '"xfl"]', r"tiny.toml: runs\[0\]: unknown method 'xfl'; known are none, "),
        ('"50%"]', '"half"]', r"tiny.toml: runs\[0\]: known must be a count or a share like \"10%\", got 'half'"),
        ("batch_size = 100", "batch_size = 0", r"tiny.toml: data: batch_size must be at least 1, got 0"),
        ("seeds = [0, 1]", "seeds = []", r"tiny.toml: runs\[0\]: seeds is empty: there is nothing to run"),
        ('"50%"]', "200]", r"tiny: runs.known: 200 of 100 poisoned samples"),
        ("rho = [0.1, 0.2, 0.5]", "rho = [2.0]", r"tiny.toml: sweep: rho must be in \[0, 1\)"),
        ("curve = 3", "curves = 3", r"tiny.toml: sweep.curves: unknown key; did you mean curve\?"),
        ("[sweep]", "[sweeep]", r"tiny.toml: sweeep: unknown key; did you mean sweep\?"),
        ("title =", 'extends = "nothing"\ntitle =', r"tiny.toml: extends: no other suite 'nothing'"),
        ("title =", "title", r"tiny.toml: not TOML: "),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path, old, new, message):
    text = TINY + SWEEP
    assert old in text
    with pytest.raises(SuiteError, match=message):
        plan(load_suite(written(tmp_path, text.replace(old, new, 1))))


def test_a_suite_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(SuiteError, match="no suite 'nonsense': neither a TOML file nor one of alpha-cifar100, "):
        load_suite("nonsense")


def test_a_file_cannot_take_the_name_of_a_shipped_suite(tmp_path):
    with pytest.raises(SuiteError, match=r"smoke.toml: smoke is the name of a shipped suite"):
        load_suite(written(tmp_path, TINY, "smoke"))


def test_a_suite_extends_another_one(tmp_path):
    text = 'extends = "goel-cifar10"\n[training]\nepochs = 3\n[model]\nname = "resnet9"\nwidth = 8\n'
    suite, base = load_suite(written(tmp_path, text, "mine")), load_suite("goel-cifar10")
    assert (suite.name, suite.epochs, suite.model.settings) == ("mine", 3, {"width": 8})
    assert (suite.data, suite.attacks, suite.runs) == (base.data, base.attacks, base.runs)
    assert suite.recipe.precision == "bfloat16"
