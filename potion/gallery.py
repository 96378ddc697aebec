"""The attack figure: one image, clean and under every attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from potion.attacks import ATTACKS, BadNet, LabelSwitch, MovingPatch, Warp
from potion.data import load

__all__ = ["attacks_figure", "draw_attacks", "example_image", "read_image"]


def example_image(size: int = 224) -> Tensor:
    """A picture from the embedded data, (1, 3, size, size) in [0, 1]."""
    image, _ = load("fashion-mnist", "test")[0]
    return interpolate(image[None].expand(-1, 3, -1, -1), (size, size), mode="bilinear", antialias=True).clamp(0, 1)


def read_image(path: Path, size: int = 224) -> Tensor:
    """The middle square of a picture file, (1, 3, size, size) in [0, 1]; a ``ValueError`` where it is none."""
    try:
        with Image.open(path) as opened:
            side = min(opened.size)
            left, top = (opened.width - side) // 2, (opened.height - side) // 2
            square = opened.convert("RGB").resize((size, size), box=(left, top, left + side, top + side))
    except OSError as error:
        raise ValueError(f"{path} cannot be read as a picture: {error}") from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)[None].float() / 255


def attacks_figure(image: Tensor) -> Any:
    """The figure. Patches are drawn large enough to be seen: 1/14 of the width, where the benchmark has 3 pixels; a warp is
    as large for the image as it is there.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    patch = max(3, image.shape[-1] // 14)
    shown: list[tuple[str, Tensor]] = [("clean", image)]
    for name, attack in ATTACKS.items():
        if issubclass(attack, BadNet):
            shown.append((f"{name}\n{patch} pixels", attack(size=patch)(image, torch.tensor([0]))))
        elif issubclass(attack, MovingPatch):
            moved = torch.cat([attack(size=patch)(image, torch.tensor([index])) for index in range(8)])
            one, two = torch.unique(moved, dim=0)[:2]
            shown += [(f"{name}\none sample", one[None]), (f"{name}\nanother sample", two[None])]
        elif issubclass(attack, Warp):
            shift = image.shape[-1] / 32
            shown.append((f"{name}\nby {shift:g} pixels", attack(shift=shift)(image, torch.tensor([0]))))
        elif issubclass(attack, LabelSwitch):
            shown.append((f"{name}\nimage untouched", attack()(image, torch.tensor([0]))))
        else:
            shown.append((f"{name}\n{_settings(attack())}", attack()(image, torch.tensor([0]))))
    figure = Figure(figsize=(2.1 * len(shown), 3.1), layout="constrained", facecolor="0.88")  # white must be seen
    FigureCanvasAgg(figure)
    for place, (title, picture) in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        axes.imshow(picture[0].permute(1, 2, 0).numpy())
        axes.set_title(title, fontsize=10)
        axes.axis("off")
    return figure


def draw_attacks(path: Path, image: Tensor) -> None:
    """Write the figure as PNG."""
    attacks_figure(image).savefig(path, format="png", dpi=120)


def _settings(attack: object) -> str:
    fields = {key: value for key, value in vars(attack).items() if key not in ("target", "seed")}
    return "\n".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in fields.items()
    )
