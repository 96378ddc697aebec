"""What all tests share."""

from __future__ import annotations

import importlib.metadata
import json
import os

# Some virtual machines offer AMX and kill the process that uses it, as bfloat16 on a CPU does.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch

if "+cpu" in torch.__version__ and "+cpu" not in importlib.metadata.version("torchvision"):
    # A torchvision built for CUDA does not import beside a CPU torch, for want of two operators; timm needs only the rest.
    torchvision_operators = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        torchvision_operators.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from typer.testing import CliRunner

from backdoor import learned
from potion.cli import app
from potion.embedded import Embedded, embedded_model
from victim import arguments, make_victim


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def embedded():
    """The embedded scenario; its data sets are read once."""
    return Embedded()


@pytest.fixture(scope="session")
def victim():
    """The embedded poisoned model. Tests must not change it: heal never does."""
    return embedded_model("victim")


@pytest.fixture(scope="session")
def case():
    """A small network that learned a backdoor, its data and the indices of all the poison; not to be changed."""
    return learned()


@pytest.fixture(scope="session")
def case_on_disk(tmp_path_factory):
    """A small poisoned model with its data, as files; not to be changed."""
    folder = tmp_path_factory.mktemp("victim")
    make_victim(folder)
    return folder


@pytest.fixture
def heal(case_on_disk, monkeypatch, tmp_path):
    """Run ``potion heal`` where the victim lies; the results go to ``tmp_path/out`` unless said otherwise."""
    monkeypatch.chdir(case_on_disk)

    def run(code=0, **changed):
        done = CliRunner().invoke(app, arguments(**{"out": tmp_path / "out", **changed}), catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture(scope="session")
def healed(case_on_disk, tmp_path_factory):
    """The folder of one finished heal with scores, and what was printed; not to be changed."""
    folder = tmp_path_factory.mktemp("healed") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(case_on_disk)
        words = arguments(out=folder, clean="clean", triggered="triggered", json=True)
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder, json.loads(done.stdout)
