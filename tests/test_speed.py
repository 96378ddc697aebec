"""``potion bench speed`` measures, fits and writes; what it measured is nobody's business here."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmark import asked
from PIL import Image

from potion.bench.growth import fitted


def test_fits_are_numpys():
    sizes, seconds = [1.0, 2.0, 4.0, 8.0], [0.31, 0.52, 0.88, 1.71]
    fit = fitted(sizes, seconds)
    slope, intercept = np.polyfit(sizes, seconds, 1)
    assert (fit.slope, fit.intercept) == pytest.approx((slope, intercept))
    assert fit.exponent == pytest.approx(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def test_it_prints_ratios_and_writes_json_and_a_figure(tmp_path):
    done = asked("speed", "--images", 1024, "--repeats", 1, "--known", 20, "--device", "cpu", "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    found = json.loads((tmp_path / "cpu-embedded-xlf.json").read_text())
    assert set(found["ratios"]) == {
        "heal / plain pass", "importance pass / plain pass", "search / importance pass", "achieved / peak FLOP/s",
    }  # fmt: skip
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert set(found["scaling"]) == {"training samples", "known samples", "parameters"}
    assert found["status"] == "healed"
    for name in found["ratios"]:
        assert name in done.stdout
    with Image.open(tmp_path / "cpu-embedded-xlf.png") as picture:
        assert picture.width > 800


def test_a_workload_that_does_not_exist_is_named():
    done = asked("speed", "--workload", "alexnet")
    assert done.exit_code == 2
    assert "unknown workload 'alexnet'; known are embedded, cifar10, resnet9, " in done.stderr
