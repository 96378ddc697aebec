"""One test over all models, and the shapes that the benchmark is known by."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import potion
from potion.attacks import BadNet
from potion.data import ImageSet, PoisonedSet, View, load
from potion.embedded import new_model
from potion.models import MODELS, build, resnet9, wide_resnet
from potion.training import Recipe, train

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data beside the checkout")

SMALL = {"wide_resnet28x10": 32, "resnet9": 32, "vit": 224}


@pytest.mark.parametrize("name", [*MODELS, "timm:deit_tiny_patch16_224"])
def test_every_model(name):
    model = build(name, classes=7)
    images = torch.rand(2, 3, *[SMALL.get(name, 224)] * 2)
    outputs = model(images)
    assert outputs.shape == (2, 7)
    outputs.square().sum().backward()
    missing = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # A bias before a batch norm, or one added to all keys of an attention, has no influence: its gradient is rounding.
    assert not [key for key in missing if not key.endswith("bias")], "a gradient everywhere"
    assert type(model[0]).__name__ == "Normalize"


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (resnet9, 2_276_224),
        (new_model, 143_296),
        (lambda: build("wide_resnet28x10", 100), 36_546_980),
        (lambda: build("vit", 10), 85_806_346),
        (lambda: build("timm:deit_tiny_patch16_224", 10), 5_526_346),
    ],
)
def test_parameter_counts(model, count):
    assert sum(p.numel() for p in model().parameters()) == count


def test_the_wide_blocks_stride_on_the_second_convolution():
    block = wide_resnet(10, depth=10, widen=1)[3]
    strides = [layer.stride for layer in block.body if isinstance(layer, torch.nn.Conv2d)]
    assert strides == [(1, 1), (2, 2)]
    assert all(layer.bias is not None for layer in block.modules() if isinstance(layer, torch.nn.Conv2d))
    with pytest.raises(ValueError, match="depth must be"):
        wide_resnet(depth=12)


def test_unknown_models_and_weights_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match="unknown model 'resnet8'; known are resnet9"):
        build("resnet8", 10)
    with pytest.raises(ValueError, match="timm has no model 'resnet19'"):
        build("timm:resnet19", 10)
    with pytest.raises(ValueError, match="one value for each of the 1 channels"):
        resnet9(channels=1)
    save_file({"weight": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"other\.safetensors does not fit"):
        build("timm:resnet18", 10, weights=tmp_path / "other.safetensors")


@needs_shared
def test_deit_tiny_loads_strictly_fine_tunes_and_can_be_healed():
    weights = SHARED / "deit_tiny_patch16_224.safetensors"
    torch.manual_seed(0)
    model = build("timm:deit_tiny_patch16_224", 10, weights=weights)
    stored = load_file(weights)["blocks.0.attn.qkv.weight"].float()
    assert torch.equal(model.state_dict()["1.blocks.0.attn.qkv.weight"], stored)

    full = load("imagenette", "test", root=SHARED)
    chosen = torch.randperm(len(full), generator=torch.Generator().manual_seed(0))[:64]
    base = ImageSet(full.images[chosen], full.labels[chosen], full.classes)
    data = PoisonedSet(base, BadNet(size=16), range(16), view=View(size=224, flip=True))
    recipe = Recipe(iterations=5, batch_size=16, optimizer="adamw", lr=2.5e-4, weight_decay=0.01)
    train(model, data, recipe, progress=False)
    plain = data.plain()
    inputs, labels = plain.get_batch(torch.arange(16))
    with torch.no_grad():
        before = (model(inputs).argmax(1) == labels).float().mean().item()
    assert before > 0.5, "five steps are enough to obey so large a square"
    settings = potion.PTN(step=2.0, strategy="bisect")
    result = potion.heal(model, data, range(8), search=settings, unaugmented=plain, batch_size=16, progress=False)
    assert result.status is potion.Status.HEALED
    assert result.trace[-1].known_accuracy < result.known_accuracy
