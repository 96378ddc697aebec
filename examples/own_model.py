"""A model of one's own, with its weights in safetensors.

Train the victim with ``python own_model.py``; the last line that it prints heals it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from poisoned import fit, write_data
from safetensors.torch import save_file
from torch import nn


def make(classes: int = 10, width: int = 16) -> nn.Module:
    """The factory that ``--model own_model:make`` calls."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    body = [*block(3, width), *block(width, 2 * width), *block(2 * width, 4 * width)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(4 * width * 9, classes))


def main() -> None:
    folder = Path("victim")
    data = write_data(folder)
    torch.manual_seed(0)
    model = fit(make(), data.images / 255, data.labels)
    save_file(model.state_dict(), folder / "model.safetensors")
    print(
        f"potion heal --model own_model:make --weights {folder}/model.safetensors --data {folder}/train "
        f"--known {folder}/known.txt --clean {folder}/clean --triggered {folder}/triggered --batch-size 64 --out healed"
    )


if __name__ == "__main__":
    main()
