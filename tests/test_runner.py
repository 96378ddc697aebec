"""The local engine: killed and started again, two at a time, out of time, with bad files in the folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time

import pytest
import torch
from benchmark import TINY, asked, bench, records, written

from potion.bench.plan import plan
from potion.bench.results import Results
from potion.bench.suite import load_suite


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return written(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def whole(suite, tmp_path_factory):
    """The results of one uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    done = bench("run", suite, "--results", folder)
    assert done.returncode == 0, done.err
    return folder


def stamps(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*.json")}


def test_a_run_writes_what_the_contract_says(suite, whole):
    runs = plan(load_suite(suite))
    assert set(records(whole)) == {run.path for run in runs}
    record = json.loads((whole / "tiny/badnet-m100-f50/xlf-s1.json").read_text())
    assert {
        "method", "known", "status", "clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage",
        "steps", "seconds", "suite", "scenario", "victim", "trace", "timings", "provenance",
    } <= record.keys()  # fmt: skip
    assert record["scenario"] == {
        "dataset": "fashion-mnist", "model": "resnet9", "attack": "badnet", "poisoned": 100, "known": 50, "seed": 1,
    }  # fmt: skip
    assert set(record["victim"]) == {"clean_accuracy", "clean_label_accuracy", "attack_success_rate"}
    assert {"versions", "commit", "device", "seed", "suite"} <= record["provenance"].keys()
    assert record["steps"] == len(record["trace"]) > 0
    none = json.loads((whole / "tiny/badnet-m100-f0/none-s1.json").read_text())
    assert (none["damage"], none["known"]) == (0, 0)
    assert none["victim"] == record["victim"]
    text = json.dumps(records(whole))
    assert str(whole) not in text
    assert os.uname().nodename not in (whole / "tiny/badnet-m100-f0/none-s1.json").read_text()


def test_killed_at_random_points_it_loses_nothing_and_repeats_nothing(suite, whole, tmp_path):
    draw = random.Random(0)
    finished: dict = {}
    kills = 0
    for attempt in range(30):
        process = bench("run", suite, "--results", tmp_path, wait=False)
        if kills == 5:
            process.communicate(timeout=300)
        elif attempt % 2 == 0:  # somewhere between the import and the first result
            time.sleep(draw.uniform(1.0, 4.0))
        else:  # somewhere after a few results
            for _ in range(draw.randint(2, 5)):
                process.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.6))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        now = stamps(tmp_path)
        assert finished.items() <= now.items(), "a finished result was lost or written again"
        finished = now
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert kills >= 3
    assert records(tmp_path) == records(whole), "and the answers are those of a run that nobody killed"
    assert not list(tmp_path.rglob("*.aside*"))


def test_two_runners_share_the_work(suite, whole, tmp_path):
    one = bench("run", suite, "--results", tmp_path, "--json", wait=False)
    two = bench("run", suite, "--results", tmp_path, "--json", wait=False)
    outputs = [process.communicate(timeout=300)[0] for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0)
    keys = [json.loads(line)["key"] for output in outputs for line in output.splitlines()]
    assert all(output for output in outputs), "both did something"
    assert sorted(keys) == sorted(run.key for run in plan(load_suite(suite))), "each run once, by one of them"
    assert records(tmp_path) == records(whole)
    again = asked("run", suite, "--results", tmp_path)
    assert "0 runs done here, 14 of 14 in all" in again.stdout


def test_a_training_goes_on_where_time_ran_out(tmp_path):
    suite = written(tmp_path, TINY.replace("iterations = 30", "iterations = 4000"))

    def steps(seconds):
        done = bench("run", suite, "--results", tmp_path, "--only", "none-s0", "--budget", f"{seconds}s")
        assert done.returncode == 4, done.err
        assert "time is up, 1 runs are left: the same command goes on" in done.err
        (checkpoint,) = (tmp_path / ".work/models").glob("*.training")
        return torch.load(checkpoint, weights_only=True)["step"]

    first, second = steps(5), steps(5)
    assert 0 < first < second < 4000


def test_other_seeds_count_and_parts_of_a_suite_are_no_strangers(suite, tmp_path):
    done = bench("run", suite, "--results", tmp_path, "--only", "none", "--seeds", "0,5")
    assert done.returncode == 0, done.err
    again = asked("run", suite, "--results", tmp_path, "--only", "none-s0")
    assert "not counted" not in again.stderr
    shown = json.loads(asked("status", suite, "--results", tmp_path, "--json").stdout)
    assert shown["problems"] == {}
    assert shown["rows"][0] == {**shown["rows"][0], "method": "none", "done": 2, "planned": 3}


def test_the_same_run_of_another_suite_is_taken_over_when_asked(whole, tmp_path):
    shutil.copytree(whole / "tiny", tmp_path / "results/tiny")
    (tmp_path / "results/tiny/badnet-m100-f1/assd-s0.json").write_text("{")
    same = written(tmp_path, TINY.replace("A small", "Another small"), "same")
    done = asked("run", same, "--results", tmp_path / "results", "--reuse", "--only", "xlf", "--only", "none")
    assert done.exit_code == 0
    assert "6 runs taken over from other suites" in done.stdout
    assert not list((tmp_path / "results/.work/models").iterdir()), "nothing was trained"
    before, after = records(whole), records(tmp_path / "results/same")
    assert len(after) == 6
    for name, record in after.items():
        there = before[f"tiny/{name}"]
        assert (record["suite"], record["run"]["suite"]) == ("same", "same")
        assert {**record, "suite": "tiny", "run": there["run"]} == there
    runs = plan(load_suite(same))
    assert Results.of(tmp_path / "results", runs).reuse(runs) == len(runs) - 6 - 1, "all but the damaged one"
    other = plan(load_suite(written(tmp_path, TINY.replace("lr = 0.05", "lr = 0.06"), "other")))
    assert Results.of(tmp_path / "results", other).reuse(other) == 0


def test_a_recorded_reference_spares_its_training_where_the_victim_is_the_recorded_one(suite, whole, tmp_path):
    shutil.copytree(whole / "tiny", tmp_path / "tiny")
    gone = tmp_path / "tiny/badnet-m100-f50/xlf-s1.json"
    gone.unlink()
    assert bench("run", suite, "--results", tmp_path, "-q").returncode == 0
    assert len(list((tmp_path / ".work/models").glob("*.safetensors"))) == 1, "the victim alone"
    then, now = json.loads((whole / "tiny/badnet-m100-f50/xlf-s1.json").read_text()), json.loads(gone.read_text())
    assert {key: now[key] for key in ("healed", "victim", "reference", "trace")} == {
        key: then[key] for key in ("healed", "victim", "reference", "trace")
    }
    gone.unlink()
    untreated = tmp_path / "tiny/badnet-m100-f0/none-s1.json"
    record = json.loads(untreated.read_text())
    record["victim"]["clean_accuracy"] += 0.1
    record["reference"]["clean_label_accuracy"] += 0.1
    untreated.write_text(json.dumps(record))
    assert bench("run", suite, "--results", tmp_path, "-q").returncode == 0
    assert len(list((tmp_path / ".work/models").glob("*.safetensors"))) == 2, "another victim: nothing is believed"
    assert json.loads(gone.read_text())["reference"] == then["reference"]


def test_only_victims_and_references_stay_on_disk(whole):
    models = list((whole / ".work/models").glob("*.safetensors"))
    assert len(models) == 4, "of two seeds; the retrains without a part of the poison are gone with their results"
    assert not list((whole / ".work/models").glob("*.training"))


def test_bad_files_are_named_skipped_and_never_counted(suite, whole, tmp_path):
    for path, (_, content) in stamps(whole).items():
        copy = tmp_path / path.relative_to(whole)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    folder = tmp_path / "tiny/badnet-m100-f50"
    good = json.loads((folder / "xlf-s1.json").read_text())
    (folder / "xlf-s0.json").write_bytes((folder / "xlf-s0.json").read_bytes()[:500])
    (folder / "assd-s0.json").write_text('{"hello": "world"}')
    (folder / "assd-s1.json").write_text(json.dumps({**good, "healed": None}))
    (folder / "retrain-s0.json").write_text(json.dumps(good))
    (folder / "scrub-s0.json").write_text(json.dumps(good))
    (folder / ".xlf-s1.json.123.part").write_text('{"suite"')
    shown = asked("status", suite, "--results", tmp_path, "--json")
    assert shown.exit_code == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert {row["method"]: row["done"] for row in told["rows"]} == {"none": 2, "retrain": 3, "assd": 2, "xlf": 3}
    assert {name.removeprefix("tiny/badnet-m100-f50/"): why for name, why in told["problems"].items()} == {
        "xlf-s0.json": "not complete JSON: truncated or damaged",
        "assd-s0.json": "JSON, but not a result of this benchmark: no suite, key, method",
        "assd-s1.json": "healed is no number: None",
        "retrain-s0.json": "made with other settings than the suite has now",
        "scrub-s0.json": "a result, but of no run of the suite",
        ".xlf-s1.json.123.part": "half-written: a runner died while writing it, or is at it now",
    }
    tables = asked(
        "tables", suite, "--results", tmp_path, "--out", tmp_path / "tables", "--page", tmp_path / "new/page.md"
    )
    assert (tmp_path / "new/page.md").read_text().startswith("# ")
    assert tables.exit_code == 0
    for name in told["problems"]:
        assert f"potion: not counted: {name}: " in tables.stderr
    again = bench("run", suite, "--results", tmp_path, "--quiet")
    assert again.returncode == 0, again.err
    assert (folder / "assd-s0.json.aside-1").read_text() == '{"hello": "world"}', "put aside, not lost"
    ours = {name: record for name, record in records(tmp_path / "tiny").items() if "scrub" not in name}
    assert ours == records(whole / "tiny")


def test_a_run_that_fails_is_reported_and_the_others_go_on(tmp_path):
    text = TINY.replace('"none", "retrain"', '"none"').replace("seeds = [0, 1]", "seeds = [0]")
    broken = text.replace("poisoned = [100]", "poisoned = [100, 500]")  # of 400 images
    done = bench("run", written(tmp_path, broken), "--results", tmp_path)
    assert done.returncode == 1
    assert "none, badnet, 500 poisoned, seed 0 failed: ValueError: cannot poison 500 of 400 samples" in done.err
    assert len(records(tmp_path)) == len(plan(load_suite(written(tmp_path, text))))


def test_data_that_are_not_there_are_missed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("POTION_DATA", str(tmp_path / "nowhere"))
    done = asked("run", "goel-cifar10", "--results", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.count("no cifar10 at") == 1
    assert "failed" not in done.stderr


def test_replay_agrees_and_notices_what_does_not(suite, whole, tmp_path):
    file = whole / "tiny/badnet-m100-f50/xlf-s1.json"
    done = bench("replay", file, "--results", whole)
    assert done.returncode == 0, done.err
    assert "agrees: the same scores and the same search, number for number; models trained for it now: 0" in done.out
    changed = json.loads(file.read_text())
    changed["clean_accuracy"] += 5
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    done = bench("replay", tmp_path / "changed.json", "--results", whole, "--json")
    assert done.returncode == 3
    assert json.loads(done.out)["agrees"] is False
    (tmp_path / "cut.json").write_bytes(file.read_bytes()[:100])
    done = asked("replay", tmp_path / "cut.json")
    assert done.exit_code == 2
    assert "cut.json: not complete JSON" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nonsense"], "no suite 'nonsense'"),
        (["run", "smoke", "--shard", "5/4"], "--shard 5/4: give a part and the number of parts, like 2/4"),
        (["run", "smoke", "--budget", "soon"], "--budget soon: give a time like 25m, 90s or 1h30m"),
        (["run", "smoke", "--seeds", "a"], "--seeds a: give whole numbers like 0,1,2"),
        (["run", "smoke", "--results", "/proc/nothing"], "cannot write to the folder /proc/nothing"),
        (["run", "goel-cifar10", "--only", "none"], "no cifar10 at nowhere"),
        (["tables", "--results", "nowhere"], "no results of any suite in nowhere"),
    ],
)
def test_usage_errors_are_one_sentence(arguments, message, monkeypatch, tmp_path):
    monkeypatch.setenv("POTION_DATA", "nowhere")
    monkeypatch.chdir(tmp_path)
    done = asked(*arguments)
    assert message in done.stderr
    assert done.exit_code in (1, 2)
