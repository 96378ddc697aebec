"""The Ray engine, on a real Ray with two workers, one of which is killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from pathlib import Path

import pytest
from benchmark import TINY, bench, records, written

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the Ray engine needs ray (extra bench)"
)


def workers_of(session: int) -> list[int]:
    """The processes of that session in which Ray is performing a run right now: they carry the task's name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
            alive = os.getsid(int(folder.name)) == session
        except OSError:  # gone meanwhile
            continue
        if alive and title.startswith(b"ray::_Worker.perform"):
            found.append(int(folder.name))
    return found


def test_a_lost_worker_changes_nothing(tmp_path):
    suite = written(tmp_path)
    local, cluster = tmp_path / "local", tmp_path / "cluster"
    done = bench("run", suite, "--results", local)
    assert done.returncode == 0, done.err
    process = bench("run", suite, "--results", cluster, "--engine", "ray", wait=False)
    deadline = time.monotonic() + 200
    while not (working := workers_of(process.pid)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no worker ever began a run"
        time.sleep(0.01)
    os.kill(working[0], signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "14 runs done here, 14 of 14 in all" in out
    assert records(cluster) == records(local)
    kept = {path.name for path in (cluster / ".work/models").glob("*.safetensors")}
    assert kept == {path.name for path in (local / ".work/models").glob("*.safetensors")}, "victims come back, too"


def test_a_scenario_that_cannot_be_had_fails_alone(tmp_path):
    text = TINY.replace("poisoned = [100]", "poisoned = [100, 500]").replace(
        "seeds = [0, 1]", "seeds = [0]"
    )  # of 400 images
    done = bench(
        "run", written(tmp_path, text), "--results", tmp_path, "--engine", "ray", "--only", "none", "--only", "assd"
    )
    assert done.returncode == 1
    assert "none, badnet, 500 poisoned, seed 0 failed: ValueError: cannot poison 500 of 400 samples" in done.err
    assert len(records(tmp_path)) == 3
