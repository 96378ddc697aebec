"""The default that ships with the package: a Fashion-MNIST subset and three small models trained on it.

``scripts/make_assets.py`` makes all of it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from safetensors.torch import load_model
from torch import nn

from potion.attacks import BadNet
from potion.data import ImageSet, ParquetRows, PoisonedSet, View, draw_poison, known_share
from potion.data.load import ASSETS
from potion.models import resnet9
from potion.runtime import set_layout
from potion.training import Recipe

__all__ = ["ASSETS", "Embedded", "embedded_model"]

RECIPE: Final = Recipe(iterations=1500, batch_size=256, lr=0.05, channels_last=True)
Checkpoint = Literal["victim", "retrain_half", "retrain_clean"]


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """The scenario behind the assets: who was poisoned, how, and how the three models were trained."""

    attack: BadNet = field(default_factory=BadNet)
    poisoned: int = 200
    seed: int = 0
    recipe: Recipe = RECIPE
    train: ImageSet = field(default_factory=lambda: _images("train"))
    test: ImageSet = field(default_factory=lambda: _images("test"))

    def poison(self) -> list[int]:
        """S_m, as indices into the training set."""
        return draw_poison(self.attack, self.train.labels, self.poisoned, self.seed)

    def known(self, count: int, seed: int = 0) -> list[int]:
        """S_f: ``count`` of the poisoned samples."""
        return known_share(self.poison(), count, seed)

    def train_set(self) -> PoisonedSet:
        """The contaminated training set that the victim has seen, augmented; ``plain()`` is the one without that."""
        return PoisonedSet(self.train, self.attack, self.poison(), view=View(padding=4, flip=True))


def _images(split: str) -> ImageSet:
    return ImageSet.decoded(ParquetRows([ASSETS / f"{split}.parquet"])).padded(32)


def new_model() -> nn.Sequential:
    """The quarter-width ResNet-9 of the embedded checkpoints, freshly initialised: 143,296 parameters."""
    return resnet9(channels=1, width=16, mean=(0.2192,), std=(0.3327,))


def embedded_model(checkpoint: Checkpoint) -> nn.Module:
    """One of the embedded models, in eval mode. Its weights lie channels-last, which is faster on a CPU."""
    model = new_model()
    load_model(model, ASSETS / f"{checkpoint}.safetensors")
    set_layout(model, channels_last=True)
    return model.eval()
