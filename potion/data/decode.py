"""From the bytes of an image file to pixels: grey or colour, 8 bits, of one size where that is asked for."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from PIL import Image

from potion.data.encoded import Encoded

__all__ = ["decode", "mode_of"]

GREY: Final = {"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"}


def decode(encoded: Encoded, index: int, *, mode: str, size: int | None) -> np.ndarray[Any, Any]:
    """One image as uint8 (C, H, W); with ``size``, its middle square, that many pixels wide."""
    content = _content(encoded, index)
    try:
        with Image.open(io.BytesIO(content)) as image:
            if size is not None:
                image.draft(mode, (size, size))  # a JPEG decoder can leave out what would be thrown away
            picture = _eight_bit(image).convert(mode)
    except Exception as error:  # a decoder may raise anything at all for damaged bytes
        raise ValueError(f"{encoded.where(index)}: the image cannot be decoded: {error}") from error
    if size is not None and picture.size != (size, size):
        picture = _middle_square(picture, size)
    pixels = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def mode_of(encoded: Encoded, looks: int = 32) -> str:
    """``"L"`` where all the images looked at, spread over the set, are grey ones, else ``"RGB"``."""
    for index in sorted({round(place * (len(encoded) - 1) / looks) for place in range(looks + 1)}):
        content = _content(encoded, index)
        try:
            with Image.open(io.BytesIO(content)) as image:
                if image.mode not in GREY:
                    return "RGB"
        except Exception as error:  # a decoder may raise anything at all for damaged bytes
            raise ValueError(f"{encoded.where(index)}: the image cannot be decoded: {error}") from error
    return "L"


def _content(encoded: Encoded, index: int) -> bytes:
    """The bytes of an image, if there are any."""
    content = encoded.read(index)
    if not content:
        raise ValueError(f"{encoded.where(index)}: the image is an empty file")
    return content


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit grey values scaled down; Pillow's own conversion would cut them off at 255."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode!r} have no known range; store 8 or 16 bits")
    return image


def _middle_square(picture: Image.Image, size: int) -> Image.Image:
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return picture.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
