"""A benchmark suite that is learned in seconds, and ways to run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from potion.cli import app

TINY = """
title = "A small network learns a large patch"
[data]
source = "fashion-mnist"
limit = 400
test_limit = 100
batch_size = 100
[model]
name = "resnet9"
channels = 1
width = 4
mean = [0.2192]
std = [0.3327]
[training]
iterations = 30
batch_size = 50
lr = 0.05
[[attacks]]
name = "badnet"
size = 8
poisoned = [100]
[[runs]]
methods = ["none", "retrain", "assd", "xlf"]
known = [1, "50%"]
seeds = [0, 1]
"""

SWEEP = """
[sweep]
rho = [0.1, 0.2, 0.5]
step = [1.1, 2.0]
curve = 3
bisect = true
"""


def written(folder: Path, text: str = TINY, name: str = "tiny") -> Path:
    """A suite file."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def bench(*arguments: object, wait: bool = True) -> subprocess.Popen[str]:
    """``potion bench`` in a process of its own, on one thread so that every engine computes the same bits."""
    process = subprocess.Popen(
        [sys.executable, "-m", "potion", "bench", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    if wait:
        process.out, process.err = process.communicate(timeout=300)
    return process


def asked(*arguments: object) -> Result:
    """``potion bench`` in this process, for commands that no engine has a part in."""
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], catch_exceptions=False)


def records(folder: Path) -> dict[str, dict]:
    """All result files of a folder, without what differs from one time to the next."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        record = json.loads(path.read_text())
        for changing in ("seconds", "timings", "provenance"):
            del record[changing]
        for point in record.get("points", []):
            del point["search_seconds"]
        found[path.relative_to(folder).as_posix()] = record
    return found
