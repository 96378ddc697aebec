"""Eq. (1), (4) and (5) against the oracle, and the promise that the model comes back as it was."""

from __future__ import annotations

import copy
import random

import numpy as np
import oracle
import pytest
import torch
from torch import nn

import potion

SETTINGS = [("ssd", None), ("lf", None), ("xlf", None), ("xlf", 0.5), ("lf", 3.0)]


@pytest.mark.parametrize("network", oracle.NETWORKS)
@pytest.mark.parametrize(("kind", "exponent"), SETTINGS)
@pytest.mark.parametrize("per_sample", [False, True])
def test_equals_the_equation(network, kind, exponent, per_sample):
    model, batches = oracle.network(network), oracle.in_batches(*oracle.data(), 4)  # the last batch is short
    found = potion.importances(model, batches, kind, exponent=exponent, per_sample=per_sample)
    expected = oracle.importance(model, batches, kind, exponent, per_sample)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-9, atol=1e-14, err_msg=name)


class DependsOnData(nn.Linear):
    def forward(self, x):
        return super().forward(x) * (2 if x.sum().item() > 0 else 1)


def test_per_sample_works_where_vmap_does_not():
    model, batches = DependsOnData(8, 4).double(), oracle.in_batches(*oracle.data(), 4)
    found = potion.importances(model, batches, per_sample=True)
    for name, value in oracle.importance(model, batches, "xlf", per_sample=True).items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-9)


def test_batch_mean_and_per_sample_differ_but_agree_on_batches_of_one():
    model, (x, y) = oracle.network("mlp"), oracle.data()
    whole = potion.importances(model, oracle.in_batches(x, y, 7))
    single = potion.importances(model, oracle.in_batches(x, y, 1))
    exact = potion.importances(model, oracle.in_batches(x, y, 7), per_sample=True)
    assert not torch.allclose(whole["0.weight"], exact["0.weight"])
    torch.testing.assert_close(single, exact)


@pytest.mark.parametrize("kind", ["ssd", "xlf"])
def test_the_order_of_the_batches_does_not_matter(kind):
    model, batches = oracle.network("conv"), oracle.in_batches(*oracle.data(), 4)
    torch.testing.assert_close(potion.importances(model, batches, kind), potion.importances(model, batches[::-1], kind))


class Odd(nn.Module):
    """Frozen, unused and tied weights, a buffer that counts calls, dropout, and noise even in eval mode."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.unused = nn.Parameter(torch.randn(3))
        self.scalar = nn.Parameter(torch.tensor(1.5))
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.first.weight
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("expanded", torch.zeros(1).expand(5))

    def forward(self, x):
        self.calls += 1
        self.replaced = self.replaced + 1
        noise = 1e-3 * torch.randn_like(x)
        return self.tied(self.drop(self.frozen(torch.tanh(self.first(x + noise))))) * self.scalar


@pytest.mark.parametrize("per_sample", [False, True])
def test_the_model_comes_back_as_it_was(per_sample):
    model = Odd()
    model.train()
    model.drop.eval()
    model.first.bias.grad = torch.ones(8)
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    grads = [p.requires_grad for p in model.parameters()]
    seeds = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    batches = oracle.in_batches(*oracle.data(dtype=torch.float32), 4)
    batches.append((batches[0][0][:0], batches[0][1][:0]))  # an empty batch is no term
    with torch.no_grad():
        found = potion.importances(model, batches, per_sample=per_sample)
    assert [module.training for module in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == grads
    assert torch.equal(model.first.bias.grad, torch.ones(8))
    assert all(p.grad is None for name, p in model.named_parameters() if name != "first.bias")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seeds[0])
    assert random.getstate() == seeds[1]
    assert np.array_equal(np.random.get_state()[1], seeds[2])
    assert found.keys() == dict(model.named_parameters()).keys()  # the tied weight once
    for name in ("frozen.weight", "frozen.bias", "unused"):
        assert not found[name].any()
    assert found["first.weight"].any()
    assert found["scalar"].shape == ()


def test_recurrent_layers_come_back_as_they_were():
    """While gradients are taken they are in training mode, without dropout, for the sake of cuDNN."""
    model = oracle.network("recurrent")
    potion.importances(model, oracle.in_batches(*oracle.data(), 4))
    assert model.layers.dropout == 0.5
    assert not model.layers.training


def test_a_model_that_is_frozen_altogether_counts_altogether():
    model, batches = oracle.network("mlp"), oracle.in_batches(*oracle.data(), 4)
    expected = potion.importances(model, batches)
    model.requires_grad_(False)
    torch.testing.assert_close(potion.importances(model, batches), expected)
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_add_up_in_float32(dtype):
    model, batches = oracle.network("mlp", dtype=dtype), oracle.in_batches(*oracle.data(dtype=torch.float32), 2)
    found = potion.importances(model, batches * 5, "lf")
    assert all(value.dtype == torch.float32 for value in found.values())
    expected = potion.importances(copy.deepcopy(model).double(), batches, "lf")
    for name in found:
        torch.testing.assert_close(found[name].double(), expected[name], rtol=0.05, atol=0.05)


def test_sparse_gradients_are_understood():
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))
    x, y = torch.randint(0, 10, (6, 2)), torch.randint(0, 3, (6,))
    found = potion.importances(model, [(x, y)], "ssd")
    model[0].sparse = False
    torch.testing.assert_close(found, potion.importances(model, [(x, y)], "ssd"))


class Returns(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.weight, self.outputs = nn.Parameter(torch.ones(8, 4)), outputs

    def forward(self, x):
        return self.outputs(x @ self.weight)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (nn.Identity(), ValueError, "no parameters"),
        (Returns(lambda out: (out, out)), TypeError, "got tuple"),
        (Returns(lambda out: out[0]), ValueError, r"logits \(N, K\)"),
        (Returns(lambda out: out * float("nan")), ValueError, "not finite"),
        (Returns(lambda out: out.detach()), ValueError, "does not depend on its weights"),
    ],
)
def test_models_that_cannot_be_used_are_refused(model, error, words):
    with pytest.raises(error, match=words):
        potion.importances(model, oracle.in_batches(*oracle.data(dtype=torch.float32), 4))


def test_bad_arguments_are_refused():
    model, (x, y) = oracle.network("mlp"), oracle.data()
    with pytest.raises(ValueError, match="unknown importance 'fisher'; known are xlf, lf, ssd"):
        potion.importances(model, [(x, y)], "fisher")
    with pytest.raises(ValueError, match="batches is empty"):
        potion.importances(model, [])
    with pytest.raises(ValueError, match="exponent must be a positive number"):
        potion.importances(model, [(x, y)], exponent=-1.0)
    with pytest.raises(ValueError, match="ssd has none"):
        potion.importances(model, [(x, y)], "ssd", exponent=1.0)
    expected = potion.importances(model, [(x, y)], "ssd")
    torch.testing.assert_close(potion.importances(model, [(x, y.int())], "ssd"), expected)
    for label in (-1, 4, -100):
        with pytest.raises(ValueError, match="a label lies outside"):
            potion.importances(model, [(x, torch.full_like(y, label))], "ssd")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_parameters_on_several_devices():
    model = oracle.network("mlp", dtype=torch.float32)
    batches = oracle.in_batches(*oracle.data(dtype=torch.float32), 4)
    expected = potion.importances(model, batches)

    class Split(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner[2](self.inner[1](self.inner[0](x)).cuda())

    split = Split(model)
    split.inner[2].cuda()
    found = potion.importances(split, batches)
    assert found["inner.2.weight"].is_cuda
    for name, value in expected.items():
        torch.testing.assert_close(found[f"inner.{name}"].cpu(), value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_another_precision_gives_the_same_importances_more_or_less(precision):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    batches = [(torch.randn(32, 16), torch.randint(0, 4, (32,))) for _ in range(3)]
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    plain, found = potion.importances(model, batches), potion.importances(model, batches, precision=precision)
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == flags
    for name, value in found.items():
        assert value.dtype == torch.float32
        if precision == "bfloat16":
            assert not torch.equal(value, plain[name]), "it was computed in another precision"
            assert nn.functional.cosine_similarity(value.flatten(), plain[name].flatten(), dim=0) > 0.995
        else:
            assert torch.equal(value, plain[name]), "a CPU has no TF32"


def test_an_unknown_precision_is_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="precision must be one of float32, tf32, bfloat16, or None, got 'int8'"):
        potion.importances(model, [(torch.randn(2, 2), torch.tensor([0, 1]))], precision="int8")


def test_an_optimizer_that_steps_in_the_backward_pass_does_not_step():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def step(p):
        optimizer.step()
        optimizer.zero_grad()

    handles = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
    before = copy.deepcopy(model.state_dict())
    potion.importances(model, [(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))])
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    model(torch.randn(8, 4)).sum().backward()
    assert not torch.equal(before["weight"], model.weight), "but the hooks are back"
    for handle in handles:
        handle.remove()
