"""Small images with a trigger, and a model that obeys it, for tests of the antidote's parts."""

from __future__ import annotations

import torch
from torch import nn

from potion.antidote.localise import Surroundings
from potion.antidote.trigger import Trigger


def trigger(**more):
    """A white square in the corner of an image of 6 x 8 pixels."""
    mask = torch.zeros(6, 8, dtype=torch.bool)
    mask[4:, 6:] = True
    given = {
        "domain": "pixels",
        "mask": mask,
        "source": torch.ones(2, 6, 8),
        "target": 1,
        "success": 0.9,
        "control": 0.1,
    }
    return Trigger(**(given | {"limits": (0.0, 1.0)} | more))


def corner(size):
    """A white square of two pixels in the corner of an image."""
    mask = torch.zeros(size, size, dtype=torch.bool)
    mask[-2:, -2:] = True
    return trigger(mask=mask, source=torch.ones(2, size, size))


def several():
    """Triggers of all domains, each with a source and limits of its own; the first and the last are of one domain."""
    waves = torch.zeros(6, 5, dtype=torch.bool)
    waves[1, 2] = waves[3, 0] = True
    return [
        trigger(),
        trigger(domain="waves", mask=waves, source=images(1, seed=2)[0], limits=(0.1, 0.5)),
        trigger(domain="sums", mask=torch.ones(6, 8, dtype=torch.bool), source=images(1, seed=3)[0] - 0.3),
        trigger(source=images(1, seed=4)[0], limits=(0.0, 0.2)),
    ]


class Corner(nn.Module):
    """Says 1 where the corner is bright, or where a wave of three cycles runs through the image; else 0 or 2."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        bright = x[:, :, 4:, 6:].mean((1, 2, 3))
        wave = torch.fft.rfft2(x)[:, :, 0, 3].abs().mean(1)
        obeys = 20 * torch.maximum(bright - 0.8, wave / 12 - 0.5)
        return torch.stack([x.mean((1, 2, 3)), obeys, x.std((1, 2, 3))], 1) * self.weight


def images(count, seed=0, high=0.6):
    return high * torch.rand(count, 2, 6, 8, generator=torch.Generator().manual_seed(seed))


def surroundings():
    return Surroundings(trusted=images(64), ordinary={1: images(32, seed=1)})
