"""Architectures of all kinds: each can be worked on, and what comes back is what its weights say."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import potion
from potion.antidote.medicine import Medicine, taught
from potion.working import working_copy

timm = pytest.importorskip("timm", reason="needs timm, which the extras 'vit' and 'dev' bring")

ZOO = ["levit_128s", "mobilenetv3_small_050", "ghostnet_050", "convnext_atto", "xcit_nano_12_p16_224", "regnetx_002"]
SIDE, COUNT, KNOWN = 64, 48, 6


def made(name):
    torch.manual_seed(0)
    size = {"img_size": SIDE} if name.startswith(("levit", "xcit")) else {}
    return timm.create_model(name, num_classes=4, **size).eval()


@pytest.fixture(params=ZOO)
def untrained(request):
    """A network as it is made, data, and samples that it gives their label."""
    model = made(request.param)
    images = torch.rand(COUNT, 3, SIDE, SIDE)
    with torch.no_grad():
        said = model(images).argmax(1)
    labels = torch.arange(COUNT) % 4
    labels[:KNOWN] = said[:KNOWN]
    return request.param, model, TensorDataset(images, labels)


def test_each_can_be_dampened_and_undone(untrained):
    name, model, data = untrained
    x = data.tensors[0][:8]
    with torch.no_grad():
        before = model(x)
        search = potion.PTN(rho=0.9, strategy="bisect")
        result = potion.heal(
            model, data, range(KNOWN), search=search, batch_size=16, device="cpu", progress=False
        )  # fmt: skip
        fresh = made(name)
        fresh.load_state_dict(result.model.state_dict())
        assert torch.equal(result.model(x), fresh(x))
        result.patch.revert(result.model)
        assert torch.equal(result.model(x), before)


def test_each_can_be_taught(untrained):
    name, model, data = untrained
    working, x = working_copy(model, "cpu", data), data.tensors[0][:8]
    medicine = Medicine(data, {}, [], torch.device("cpu"), share=0.2, seed=0)
    student = taught(working, medicine, range(COUNT), epochs=1, batch_size=16, lr=0.01, seed=0, progress=False)
    fresh = made(name)
    fresh.load_state_dict(student.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(student(x), fresh(x))  # the one is laid out otherwise than the other
        assert not torch.allclose(student(x), model(x))
