"""Models that compute something from their weights in eval mode and keep it: they must not be asked with old weights."""

from __future__ import annotations

import copy

import pytest
import torch
from backdoor import heal, learned
from torch import nn
from torch.utils.data import TensorDataset

import potion
from potion.antidote.medicine import Medicine, taught
from potion.runtime import copied
from potion.stale import forget_computed


class Plain(nn.Module):
    """A bias for each class, as attention has one for each place, behind a network."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.bias = nn.Parameter(torch.tensor([[1.5, 0.2], [0.1, 0.3]]))

    def biases(self):
        return (2 * self.bias).flatten()

    def forward(self, x):
        return self.model(x) + self.biases()


class Cached(Plain):
    """As timm's LeViT, EfficientFormer and TinyViT do it."""

    def __init__(self, model):
        super().__init__(model)
        self.cache = {}

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if mode and self.cache:
            self.cache = {}

    def biases(self):
        if self.training:
            return super().biases()
        if "cpu" not in self.cache:
            self.cache["cpu"] = super().biases()
        return self.cache["cpu"]


class Buffered(Plain):
    """As the authors of LeViT and TinyViT did it."""

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if mode and hasattr(self, "ab"):
            del self.ab
        elif not mode:
            self.register_buffer("ab", super().biases(), persistent=False)

    def biases(self):
        return super().biases() if self.training else self.ab


KEEPING = pytest.mark.parametrize("kind", [Cached, Buffered])


def made(kind):
    model = kind(copy.deepcopy(learned()[0]))
    model.eval()
    return model


def with_its_weights(model):
    fresh = Plain(copy.deepcopy(learned()[0])).eval()
    fresh.load_state_dict(model.state_dict())
    return fresh


@pytest.mark.parametrize("per_sample", [False, True])
def test_every_batch_has_a_gradient_of_its_own(case, per_sample):
    data = case[1]
    batches = [(data.tensors[0][some], data.tensors[1][some]) for some in torch.arange(60).split(20)]
    model = made(Cached)
    model(data.tensors[0][:2])  # with the graph of this call in the cache
    found = potion.importances(model, batches, "xlf", per_sample=per_sample)
    expected = potion.importances(made(Plain), batches, "xlf", per_sample=per_sample)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name]) for name in expected)
    assert expected["bias"].any()
    assert not model.cache, "neither graphs nor tensors of a transform are left behind"


@KEEPING
def test_a_heal_and_its_result_never_use_old_weights(case, kind):
    data, known = case[1:]
    model = made(kind)
    with torch.no_grad():
        model(data.tensors[0][:2])
    result = heal((model, data, known))
    assert result.status is potion.Status.HEALED
    x = data.tensors[0]
    assert torch.equal(result.model(x), with_its_weights(result.model)(x))
    if kind is Cached:
        plain = heal((made(Plain), data, known))
        assert result.trace == plain.trace
        assert result.patch.after == plain.patch.after


@KEEPING
def test_a_patch_counts_at_once(case, kind):
    x = case[1].tensors[0]
    model, other = made(kind), made(kind)
    other.bias.data.mul_(3)
    with torch.no_grad():
        before = model(x)
    patch = potion.Patch.towards(model, other)
    patch.apply(model)
    assert torch.equal(model(x), with_its_weights(other)(x))
    patch.revert(model)
    assert torch.equal(model(x), before)


@KEEPING
def test_what_a_lesson_teaches_is_asked_anew_at_each_step(case, kind):
    data = case[1]
    images = TensorDataset(data.tensors[0][:, None, None], data.tensors[1])

    def student(kind):
        model = nn.Sequential(nn.Flatten(), made(kind))
        return taught(
            model, Medicine(images, {}, [], torch.device("cpu"), share=0.2, seed=0), range(200),
            epochs=1, batch_size=50, lr=0.05, seed=0, progress=False,
        )  # fmt: skip

    taught_one, x = student(kind), images.tensors[0]
    assert torch.equal(taught_one(x), with_its_weights(taught_one[1])(x.flatten(1)))
    if kind is Cached:
        assert torch.equal(taught_one(x), student(Plain)(x))


def test_only_what_is_kept_goes(case):
    model = made(Cached)
    model.model[1].train()  # somebody's choice
    modes = [module.training for module in model.modules()]
    x = case[1].tensors[0]
    model(x)
    twin = copied(model)  # with a graph in its cache
    assert torch.equal(twin(x), model(x))
    assert model.cache
    forget_computed(model)
    assert not model.cache
    assert [module.training for module in model.modules()] == modes


def test_a_layer_that_merges_its_weights_in_eval_mode_is_left_alone(case):
    """As LoRA's do: to merge and take apart at every call would round the weights a little each time."""

    class Merging(nn.Linear):
        switched = 0

        def train(self, mode=True):
            self.switched += 1
            return super().train(mode)

    layer = Merging(8, 4).eval()
    before = layer.switched
    forget_computed(layer)
    assert layer.switched == before
