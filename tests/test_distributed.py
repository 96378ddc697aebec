"""Many processes give the answer of one: real processes, gloo, replicas and FSDP2 shards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import potion
from potion.ranking import Ranking, flat_ratios

JOB = Path(__file__).parent / "distributed_job.py"


def run(mode, method, folder, processes):
    folder.mkdir()
    job = [JOB, mode, method, folder]
    alone = [sys.executable, *job, "alone"]
    many = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *job]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(many if processes else alone, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    if mode == "refused":
        return None
    ranks = range(max(1, processes))
    results = [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in ranks]
    return results, [potion.Patch.load(folder / f"patch-{rank}.safetensors") for rank in ranks]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    found = {}

    def of(method):
        if method not in found:
            found[method] = run("replicas", method, tmp_path_factory.mktemp(method) / "alone", 0)
        return found[method]

    return of


def same_patch(one, two):
    assert (one.before, one.after) == (two.before, two.after)
    assert one.changes.keys() == two.changes.keys()
    for name in one.changes:
        assert torch.equal(one.changes[name].indices, two.changes[name].indices), "the same weights"
        assert torch.equal(one.changes[name].old, two.changes[name].old)


@pytest.mark.parametrize(("method", "processes"), [("xlf", 3), ("ssd", 2)])
def test_replicas_agree_with_one_process_to_the_last_bit(alone, tmp_path, method, processes):
    (single,), (patch,) = alone(method)
    assert single["status"] == "healed", "there is something to agree on"
    assert len(single["trace"]) > 2
    results, patches = run("replicas", method, tmp_path / "many", processes)
    for result, found in zip(results, patches, strict=True):
        for kind in ("retain", "forget"):
            assert all(torch.equal(result[kind][name], single[kind][name]) for name in single[kind])
        assert result["trace"] == single["trace"], "the same alphas and the same selections"
        same_patch(found, patch)
        assert all(torch.equal(result["healed"][name], single["healed"][name]) for name in single["healed"])


@pytest.mark.parametrize(("method", "processes"), [("xlf", 3)])
def test_shards_are_healed_without_ever_being_one(alone, tmp_path, method, processes):
    """FSDP adds gradients of parts of a batch up, so floats may differ in their last bits (1e-5); decisions do not."""
    (single,), (patch,) = alone(method)
    results, patches = run("shards", method, tmp_path / "many", processes)
    assert sum(result["held"] for result in results) == single["held"], "each held its part only"
    assert max(result["held"] for result in results) < single["held"]
    for result, found in zip(results, patches, strict=True):
        assert result["status"] == single["status"]
        assert [step["selected"] for step in result["trace"]] == [step["selected"] for step in single["trace"]]
        assert [step["known_accuracy"] for step in result["trace"]] == [
            step["known_accuracy"] for step in single["trace"]
        ]
        for one, two in zip(result["trace"], single["trace"], strict=True):
            assert one["alpha"] == pytest.approx(two["alpha"], rel=1e-4)
        assert found.changes.keys() == patch.changes.keys()
        for name, change in found.changes.items():
            assert torch.equal(change.indices, patch.changes[name].indices), "the same weights"
            torch.testing.assert_close(change.factors, patch.changes[name].factors, rtol=1e-4, atol=1e-7)
        assert (found.before, found.after) == (patches[0].before, patches[0].after)
        assert found.before == patch.before


def test_what_would_give_wrong_sums_is_refused_by_every_process(tmp_path):
    run("refused", "xlf", tmp_path / "refused", 2)


PERCENTILES = """
import sys, torch, torch.distributed as dist
from potion.ranking import Ranking, SharedRanking
dist.init_process_group("gloo")
ratios = torch.load(sys.argv[1], weights_only=True)
for values in (ratios, ratios.double() / 3):
    mine = values.tensor_split(dist.get_world_size())[dist.get_rank()]
    shared, whole = SharedRanking(mine.clone()), Ranking(values.clone())
    for s in (0.0, 1e-6, 1e-4, 0.01, 1.0, 50.0, 1e6, 1e20, 1e43):
        assert shared.alpha(s) == whole.alpha(s), (s, shared.alpha(s), whole.alpha(s))
dist.destroy_process_group()
"""


def test_the_percentile_over_shards_is_exact(tmp_path):
    torch.manual_seed(0)
    ratios = flat_ratios([(torch.rand(1000), torch.rand(1000))])
    ratios[::7] = ratios[3]  # ties
    ratios[5], ratios[6], ratios[995:] = float("nan"), float("inf"), float("nan")
    assert Ranking(ratios.clone()).infinite == 1
    torch.save(ratios, tmp_path / "ratios.pt")
    (tmp_path / "job.py").write_text(PERCENTILES)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", tmp_path / "job.py"]
    done = subprocess.run([*command, tmp_path / "ratios.pt"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
