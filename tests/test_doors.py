"""Models and data as other libraries have them: outputs with logits inside, loaders, datasets of dictionaries."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from backdoor import heal, same
from torch import Tensor, nn
from torch.utils.data import DataLoader

import potion
from potion.data import HubRows, ImageSet
from potion.forward import logits
from potion.validation import check_train_set


@dataclass
class Output:
    """What the models of transformers return, as far as that matters."""

    loss: Tensor | None
    logits: Tensor


class Wrapped(nn.Module):
    """A model that returns more than its logits; its weights have the names of the one inside."""

    def __init__(self, model):
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(model))

    def forward(self, pixel_values):
        for layer in self.layers:
            pixel_values = layer(pixel_values)
        return Output(None, pixel_values)


@pytest.mark.parametrize("per_sample", [False, True])
def test_outputs_with_logits_are_healed_as_the_logits_are(case, per_sample):
    model, data, known = case
    expected = heal(case, per_sample=per_sample, method="ssd" if per_sample else "xlf")
    found = heal((Wrapped(model), data, known), per_sample=per_sample, method="ssd" if per_sample else "xlf")
    assert found.status is expected.status is potion.Status.HEALED
    assert all(same(one, two) for one, two in zip(found.model.layers, expected.model))
    assert found.patch.changes.keys() == {f"layers.{name}" for name in expected.patch.changes}


def test_outputs_without_logits_are_refused(case):
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(TypeError, match=r"or an object with one as its \.logits, got tuple; wrap it"):
        logits(Pair(8, 4), torch.zeros(2, 8))


def test_a_loader_is_not_a_dataset(case):
    with pytest.raises(TypeError, match=r"got a DataLoader: pass loader\.dataset"):
        check_train_set(DataLoader(case[1]))


def test_a_hugging_face_dataset_has_a_door(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra 'hub' is not installed")
    from PIL import Image

    pictures = [Image.new("RGB", (9, 9), (40 * label, 0, 0)) for label in range(4)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list("abcd"))})
    rows = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 2, 3]}, features=features)
    model = nn.Sequential(nn.Flatten(), nn.Linear(243, 4))
    with pytest.raises(TypeError, match=r"got a dict with image, label; .*ImageSet\.decoded\(potion\.data\.HubRows\("):
        potion.heal(model, rows, [1], progress=False)
    images = ImageSet.decoded(HubRows(rows, "mine"))
    assert images.classes == tuple("abcd")
    assert potion.heal(model, images, [1], progress=False).known == 1
