"""What only a GPU can show. These files run with nothing but torch and pytest, so that a bare GPU machine can run them."""

import math

import pytest
import torch
from torch import nn

import potion
from potion.attacks import BadNet
from potion.batches import DatasetBatches
from potion.data import ImageSet, PoisonedSet, View
from potion.importance import summed_importances
from potion.models import resnet9
from potion.recorded import recorded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def poisoned_set(device):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (600, 3, 32, 32), dtype=torch.uint8, generator=generator)
    base = ImageSet(images, torch.randint(10, (600,), generator=generator), tuple("0123456789")).to(device)
    return PoisonedSet(base, BadNet(), range(40), view=View(padding=4, flip=True))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_waits_for_the_gpu_while_importances_are_added_up():
    model = resnet9(width=16).cuda()
    batches = DatasetBatches(poisoned_set("cuda"), range(600), 128, device="cuda", part=(0, 1))
    summed_importances(model, batches, "xlf")
    rows = iter(batches)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3):
            next(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    inside = []

    def watched():
        for batch in batches:
            torch.cuda.set_sync_debug_mode("error")
            inside.append(len(batch[0]))
            yield batch
        torch.cuda.set_sync_debug_mode("default")

    try:
        summed_importances(model, watched(), "xlf")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert inside == [128, 128, 128, 128, 88]


def test_a_recorded_call_sees_weights_that_move():
    weights = torch.zeros(4, device="cuda")
    call = recorded(lambda: torch.sum(weights * 2), weights.device)
    found = []
    for value in range(4):
        weights.fill_(value)
        found.append(float(call()))
    assert found == [0, 8, 16, 24]


def test_what_cannot_be_recorded_is_called():
    weights = torch.ones(4, device="cuda")
    call = recorded(lambda: weights * 2 if bool(weights.sum() > 0) else weights * 3, weights.device)
    assert [float(call()[0]) for _ in range(3)] == [2, 2, 2]
    weights.neg_()
    assert float(call()[0]) == -3


def test_a_recording_that_answers_otherwise_is_not_used():
    calls = []

    def call():
        calls.append(1)
        return torch.full((), float(len(calls)), device="cuda")

    counted = recorded(call, torch.device("cuda"))
    assert float(counted()) == 1
    before = len(calls)
    assert float(counted()) == before + 1


@pytest.mark.parametrize("strategy", ["sequential", "bisect"])
def test_a_gpu_heals_as_the_cpu_does(strategy):
    torch.manual_seed(0)
    model = resnet9(width=8)
    data = poisoned_set("cpu")
    batches = DatasetBatches(data, range(600), 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(12):
        for inputs, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    settings = {"search": potion.PTN(strategy=strategy), "unaugmented": data.plain(), "batch_size": 100}
    plain = data.plain()
    slow = potion.heal(model, plain, range(20), progress=False, device="cpu", **settings)
    fast = potion.heal(model, plain, range(20), progress=False, device="cuda", precision="float32", **settings)
    assert slow.status == fast.status
    for name, value in slow.retain.items():
        torch.testing.assert_close(fast.retain[name].cpu(), value, rtol=2e-2, atol=float(value.max()) * 2e-3)
    assert all(
        math.isclose(one.alpha, two.alpha, rel_tol=0.02)
        for one, two in zip(slow.trace[:5], fast.trace[:5], strict=True)
    )


def test_the_same_weights_come_back_on_the_gpu():
    model = resnet9(width=8).cuda()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = potion.heal(model, poisoned_set("cuda"), range(20), progress=False, batch_size=100)
    assert next(result.model.parameters()).is_cuda
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.stride() == before[name].stride()


def test_recurrent_layers_have_gradients_in_eval_mode():
    """cuDNN has none there."""
    torch.manual_seed(0)
    layers = nn.GRU(4, 8, num_layers=2, dropout=0.5, batch_first=True).eval()

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return self.layers(x)[0][:, -1]

    batches = [(torch.randn(16, 5, 4), torch.zeros(16, dtype=torch.long))]
    expected = potion.importances(Last(), batches)
    for name, value in potion.importances(Last().cuda(), batches).items():
        torch.testing.assert_close(value.cpu(), expected[name], rtol=1e-2, atol=1e-5)
