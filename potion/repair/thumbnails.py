"""Small pictures of the known poison and of the trigger, so that people see on the page what was taken out."""

from __future__ import annotations

import base64
import io
from typing import Final

import torch
from PIL import Image
from torch import Tensor

from potion.antidote.treatment import Treatment
from potion.repair.case import Case

__all__ = ["png", "thumbnails"]

MOST: Final = 8
SIDE: Final = 96
"""Pixels of the longer side at most: all of them stay well below 500 kB in result.json."""


def thumbnails(case: Case, treatment: Treatment | None) -> list[dict[str, str]]:
    """What the antidote found, and the first known samples as they are stored, with the label that they have there."""
    if treatment is None:
        return _known(case)
    found = [
        {"title": title, "caption": caption, "png_base64": png(image)} for title, caption, image in treatment.pictures()
    ]
    return found + _known(case)


def _known(case: Case) -> list[dict[str, str]]:
    known = case.known[:MOST]
    images, labels = case.train.images.raw(torch.tensor(known))
    return [
        {
            "title": f"sample {index}" if case.known_names is None else case.known_names[place],
            "caption": f"labelled {case.train.classes[int(labels[place])]}",
            "png_base64": png(images[place].cpu()),
        }
        for place, index in enumerate(known)
    ]


def png(image: Tensor) -> str:
    """A grey or RGB image, uint8 (C, H, W), as a small PNG in base64."""
    pixels = image.permute(1, 2, 0).squeeze(-1).numpy()
    picture, buffer = Image.fromarray(pixels), io.BytesIO()
    picture.thumbnail((SIDE, SIDE))
    picture.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
