"""A model of timm, with its weights in a ``.pt`` file and timm's own normalisation outside of the model.

Train the victim with ``python timm_model.py``; the last line that it prints heals it. ``--mean`` and ``--std`` are timm's
by default, so nothing has to be said about them.
"""

from __future__ import annotations

from pathlib import Path

import timm
import torch
from poisoned import fit, write_data

NAME = "test_resnet"  # timm's smallest; resnet18 and all the others go the same way


def main() -> None:
    folder = Path("timm_victim")
    data = write_data(folder)
    torch.manual_seed(0)
    model = timm.create_model(NAME, num_classes=len(data.classes))
    mean, std = (torch.tensor(model.pretrained_cfg[key]).view(-1, 1, 1) for key in ("mean", "std"))
    fit(model, (data.images / 255 - mean) / std, data.labels)
    torch.save(model.state_dict(), folder / "model.pt")
    print(
        f"potion heal --model {NAME} --weights {folder}/model.pt --data {folder}/train --known {folder}/known.txt "
        f"--clean {folder}/clean --triggered {folder}/triggered --batch-size 64 --out timm_healed"
    )


if __name__ == "__main__":
    main()
