"""Pictures that a result carries along, checked and kept within what a page may weigh."""

from __future__ import annotations

import base64
from typing import Any, Final

from potion.report.checks import ReportError, rows

__all__ = ["pictures"]

PICTURE_BYTES: Final = 4_000_000
"""How much of the page may be pictures, so that it stays below 5 MB."""


def pictures(data: dict[str, Any]) -> tuple[list[dict[str, str]], int]:
    """The pictures that fit, and how many do not."""
    found, room = [], PICTURE_BYTES
    given = rows(data, "pictures", texts=("png_base64",))
    for place, picture in enumerate(given):
        encoded = "".join(picture["png_base64"].split())
        try:
            is_png = base64.b64decode(encoded, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
        except ValueError:
            is_png = False
        if not is_png:
            raise ReportError(f"pictures[{place}].png_base64 is not a PNG in base64")
        if len(encoded) <= room:
            room -= len(encoded)
            title, caption = str(picture.get("title") or ""), str(picture.get("caption") or "")
            found.append({"title": title, "caption": caption, "source": f"data:image/png;base64,{encoded}"})
    return found, len(given) - len(found)
