"""The copy that is worked on: laid out as the device computes fastest, where the model takes that."""

from __future__ import annotations

import copy

import pytest
import torch
from backdoor import heal
from torch import nn
from torch.utils.data import TensorDataset
from victim import learned_of_a_corner

import potion
from potion.antidote.admission import takes_bfloat16
from potion.antidote.medicine import Medicine, taught
from potion.runtime import lies_channels_last, native_bfloat16, set_layout
from potion.working import working_copy

KNOWN = list(range(8))


class Viewing(nn.Module):
    """As many tutorials write it: a convolution, and ``.view`` for what is flat."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        for layer in self.model:
            x = x.view(len(x), -1) if isinstance(layer, nn.Flatten) else layer(x)
        return x


class Writing(nn.Module):
    """What a layer gives is written into a tensor of float32, which autocast does not see."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        outputs = torch.zeros(len(x), 4)
        outputs[torch.arange(len(x))] = self.model(x)
        return outputs


@pytest.fixture(scope="module")
def marked():
    """A network of convolutions that learned to say 0 of a bright corner, its data, the poison."""
    return *learned_of_a_corner(), list(range(40))


def layouts(model):
    return [p.stride() for p in model.parameters()]


needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch computes convolutions without oneDNN"
)


@needs_onednn
def test_convolutions_are_laid_out_channels_last_and_the_model_itself_is_left_alone(marked):
    model, data, _ = marked
    before = layouts(model)
    assert lies_channels_last(working_copy(model, "cpu", data))
    result = heal(marked, known_poison=KNOWN)
    assert layouts(model) == layouts(result.model) == before


@needs_onednn
def test_what_was_taught_is_asked_in_the_layout_of_its_teacher(marked):
    model, data, _ = marked
    medicine = Medicine(data, {}, [], torch.device("cpu"), share=0.2, seed=0)
    for teacher in (model, working_copy(model, "cpu", data)):
        student = taught(teacher, medicine, range(32), epochs=1, batch_size=16, lr=0.01, seed=0, progress=False)
        assert lies_channels_last(student) == lies_channels_last(teacher)


@needs_onednn
@pytest.mark.parametrize("method", ["xlf", "antidote"])
def test_a_model_that_views_what_it_convolved_is_worked_on_as_it_is(marked, method):
    model, data, poison = marked
    viewing = Viewing(copy.deepcopy(model))
    assert not lies_channels_last(working_copy(viewing, "cpu", data))
    laid = copy.deepcopy(viewing)
    set_layout(laid, channels_last=True)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        laid(data.tensors[0][:2])
    given = {"known_poison": KNOWN, "batch_size": 32, "device": "cpu", "method": method}
    one, two = heal((viewing, data, poison), **given), heal(marked, **given)
    assert one.status is two.status is potion.Status.HEALED, one.summary()
    assert potion.discover(viewing, one, data, device="cpu").ranked


def test_videos_are_taken_as_well(marked):
    """Their layers have weights of five dimensions, which cannot lie channels last."""
    images, labels = marked[1].tensors
    films = TensorDataset(images[:, :, None].repeat(1, 1, 2, 1, 1), labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(3, 8, (2, 3, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(films.tensors[0]), labels).backward()
        optimizer.step()
    set_layout(model, channels_last=True)
    assert not lies_channels_last(model)
    result = heal((model.eval(), films, KNOWN), known_poison=KNOWN)
    assert result.status is potion.Status.HEALED, result.summary()


def test_layouts_change_and_values_do_not():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv3d(3, 8, 3), nn.Linear(3, 8), nn.BatchNorm2d(8))
    before, strides = copy.deepcopy(model.state_dict()), layouts(model)
    set_layout(model, channels_last=True)
    assert lies_channels_last(model)
    assert [a == b for a, b in zip(layouts(model), strides, strict=True)] == [False] + [True] * (len(strides) - 1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    set_layout(model, channels_last=False)
    assert layouts(model) == strides


@pytest.mark.skipif(not native_bfloat16(torch.device("cpu")), reason="this CPU does not multiply bfloat16 numbers")
def test_a_model_that_does_not_take_bfloat16_is_taught_in_float32(marked):
    model, data, poison = marked
    writing = Writing(copy.deepcopy(model)).eval()
    some = data.tensors[0][:2]
    assert takes_bfloat16(model, some)
    assert not takes_bfloat16(writing, some)
    result = heal((writing, data, poison), known_poison=KNOWN, batch_size=32, device="cpu", method="antidote")
    assert result.status is potion.Status.HEALED, result.summary()
