"""A checkpoint as Lightning writes it: the network below ``model.``, beside it the optimizer and hyperparameters.

Potion needs no Lightning to read it, nor does this script to write it. Only the weights change: the rest of the checkpoint
comes back as it was, and training can go on from it. Train the victim with ``python lightning_checkpoint.py``; the last line
that it prints heals it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from own_model import make
from poisoned import fit, write_data
from torch import Tensor, nn


class Classifier(nn.Module):
    """What would be a ``LightningModule``: the network is an attribute, which gives its weights their prefix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.model = make(width=width)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)


def main() -> None:
    folder, settings = Path("lightning_victim"), {"width": 12}
    data = write_data(folder)
    torch.manual_seed(0)
    module = fit(Classifier(**settings), data.images / 255, data.labels)
    checkpoint = {
        "epoch": 6,
        "global_step": 6 * 32,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": module.state_dict(),
        "optimizer_states": [torch.optim.AdamW(module.parameters()).state_dict()],
        "hparams_name": "kwargs",
        "hyper_parameters": settings,
    }
    torch.save(checkpoint, folder / "last.ckpt")
    print(
        f"potion heal --model own_model:make --model-arg width=12 --weights {folder}/last.ckpt --data {folder}/train "
        f"--known {folder}/known.txt --clean {folder}/clean --triggered {folder}/triggered --batch-size 64 "
        "--out lightning_healed"
    )


if __name__ == "__main__":
    main()
