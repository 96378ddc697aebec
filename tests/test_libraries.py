"""Real models and checkpoints of Lightning and of transformers, healed from the command line and in Python."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from victim import CLASSES, factory, loaded

import potion
from potion.data import FolderFiles, ImageSet

lightning = pytest.importorskip("lightning", reason="needs lightning, which the extra 'dev' brings")
transformers = pytest.importorskip("transformers", reason="needs transformers, which the extra 'dev' brings")


class Module(lightning.LightningModule):
    """The victim's network as people have it in Lightning: an attribute, a loss, an optimizer."""

    def __init__(self, width=12):
        super().__init__()
        self.save_hyperparameters()
        self.network = factory(width=width)

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch):
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6, momentum=0.9)


def data_of(folder):
    images = ImageSet.decoded(FolderFiles(folder / "train"))
    names = [name.removeprefix(f"{folder / 'train'}/") for name in FolderFiles(folder / "train").names()]
    known = [names.index(name) for name in (folder / "poison.txt").read_text().splitlines()[1:]]
    return images, known


@pytest.mark.filterwarnings("ignore")  # what Lightning says of short trainings
def test_a_checkpoint_that_a_trainer_wrote(case_on_disk, heal, tmp_path):
    module = Module()
    module.network.load_state_dict(loaded(case_on_disk / "model.pt")[0].state_dict())
    images, known = data_of(case_on_disk)
    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(images, batch_size=32))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    heal(weights=tmp_path / "last.ckpt")
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert record["status"] == "healed", record["summary"]
    healed = Module.load_from_checkpoint(tmp_path / "out" / "healed.ckpt", map_location="cpu").eval()
    assert healed.hparams.width == 12
    before, after = (
        torch.load(path, weights_only=False) for path in (tmp_path / "last.ckpt", tmp_path / "out" / "healed.ckpt")
    )
    assert after["optimizer_states"][0]["state"].keys() == before["optimizer_states"][0]["state"].keys()
    assert after["global_step"] == before["global_step"] == 2
    result = potion.heal(module.eval(), images, known, batch_size=32, device="cpu", progress=False)
    assert result.status is potion.Status.HEALED
    assert isinstance(result.model, Module)
    assert all(torch.equal(p, q) for p, q in zip(result.model.parameters(), healed.parameters(), strict=True))


def test_a_folder_of_transformers(case_on_disk, heal, tmp_path):
    images, known = data_of(case_on_disk)
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=12, hidden_sizes=[12, 16], depths=[1, 1], layer_type="basic",
        id2label=dict(enumerate(CLASSES)), label2id={name: place for place, name in enumerate(CLASSES)},
    )  # fmt: skip
    model = transformers.ResNetForImageClassification(config)
    inputs, labels = images.get_batch(torch.arange(len(images)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model(inputs, labels=labels).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(tmp_path / "hub")
    result = potion.heal(model, images, known, batch_size=32, device="cpu", progress=False)
    assert result.known_accuracy > 0.9
    heal(0 if result.status is potion.Status.HEALED else 3, model=tmp_path / "hub", weights=None)
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert record["status"] == result.status.value == "healed", record["summary"]
    (tmp_path / "hub" / "model.safetensors").write_bytes((tmp_path / "out" / "healed.safetensors").read_bytes())
    again = transformers.ResNetForImageClassification.from_pretrained(tmp_path / "hub")
    assert all(torch.equal(p, q) for p, q in zip(again.parameters(), result.model.parameters(), strict=True))
