"""Slow, literal versions of the paper's equations. Loops over plain numbers; nothing here is shared with the package."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn


def importance(model, batches, kind, w=None, per_sample=False):
    """Eq. (1), (4), (5): mean over batches (FACTS 7) or samples of the magnitude of the gradient."""
    model = copy.deepcopy(model).eval()
    w = {"xlf": 1, "lf": 2}.get(kind) if w is None else w
    if per_sample:
        batches = [(x[i : i + 1], y[i : i + 1]) for x, y in batches for i in range(len(x))]
    total = {name: np.zeros(p.shape) for name, p in model.named_parameters()}
    for x, y in batches:
        model.zero_grad(set_to_none=True)
        outputs = model(x)
        if kind == "ssd":
            value = sum(-torch.log_softmax(outputs[k], 0)[y[k]] for k in range(len(x))) / len(x)
        else:
            value = sum((outputs[k] ** 2).sum().sqrt() ** w for k in range(len(x))) / len(x)
        value.backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                gradient = p.grad.numpy()
                total[name] += gradient**2 if kind == "ssd" else np.abs(gradient)
    return {name: value / len(batches) for name, value in total.items()}


def finite_ratios(retain, forget):
    pairs = [(float(r), float(f)) for name in retain for r, f in zip(retain[name].flatten(), forget[name].flatten())]
    return np.array([f / r for r, f in pairs if r != 0])


def percentile(s):
    return min(100.0, max(0.0, 100 - math.log(1 + 100 * s)))


def alpha(retain, forget, s):
    """Eq. (7) with FACTS 1 to 3."""
    return float(np.percentile(finite_ratios(retain, forget), percentile(s)))


def dampened(model, retain, forget, threshold, lam=1.0):
    """Eq. (2) with FACTS 5, weight by weight."""
    model = copy.deepcopy(model)
    selected = 0
    for name, p in model.named_parameters():
        flat = p.detach().view(-1)
        for i, (r, f) in enumerate(zip(retain[name].flatten().tolist(), forget[name].flatten().tolist())):
            ratio = math.inf if r == 0 and f > 0 else 0.0 if r == 0 else f / r
            if ratio > threshold:
                selected += 1
                flat[i] *= 0.0 if math.isinf(ratio) else min(lam / ratio, 1.0)
    return model, selected


def ptn(model, retain, forget, x, y, *, rho, start, step, share, max_steps=500):
    """Alg. 1 with FACTS 4: every step from the original weights. Returns (healed model or None, trace)."""

    def accuracy(m):
        with torch.no_grad():
            return float(np.mean((m(x).argmax(1) == y).numpy()))

    goal, s, trace = rho * accuracy(model), start * share, []
    for _ in range(max_steps):
        threshold = alpha(retain, forget, s)
        candidate, selected = dampened(model, retain, forget, threshold)
        trace.append((s, threshold, selected, accuracy(candidate)))
        if trace[-1][3] <= goal:
            return candidate, trace
        if threshold <= 1 or percentile(s) == 0:
            return None, trace
        s *= step
    return None, trace


class Block(nn.Module):
    """A pre-norm transformer block over four tokens, then a linear head."""

    def __init__(self, inputs=8, classes=4):
        super().__init__()
        self.norm = nn.LayerNorm(inputs // 4)
        self.attention = nn.MultiheadAttention(inputs // 4, 1, batch_first=True)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        tokens = x.view(len(x), 4, -1)
        normed = self.norm(tokens)
        tokens = tokens + self.attention(normed, normed, normed, need_weights=False)[0]
        return self.head(tokens.flatten(1))


class Recurrent(nn.Module):
    """Two recurrent layers over four tokens, with dropout between them in training, then a linear head."""

    def __init__(self):
        super().__init__()
        self.layers = nn.GRU(2, 3, num_layers=2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.layers(x.view(len(x), 4, -1))[0][:, -1])


def mlp():
    return nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 4))


def conv():
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 3, 2, padding=1), nn.BatchNorm2d(3), nn.CELU(0.075), nn.Flatten(),
        nn.Linear(27, 4, bias=False),
    )  # fmt: skip


NETWORKS = {"mlp": mlp, "conv": conv, "transformer": Block, "recurrent": Recurrent}


def network(name, seed=0, dtype=torch.float64):
    """A random small network whose batch-norm statistics are not the trivial ones."""
    torch.manual_seed(seed)
    model = NETWORKS[name]().to(dtype)
    model.train()(torch.randn(16, 8, dtype=dtype))
    return model.eval()


def data(count=14, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator, dtype=dtype)
    return x, torch.randint(0, 4, (count,), generator=generator)


def in_batches(x, y, size):
    return list(zip(x.split(size), y.split(size), strict=True))
