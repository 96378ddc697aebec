"""Nested settings as the lines of a list that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["duration", "facts"]

ITEMS: Final = 20
"""How many values of a list are shown."""


def facts(settings: Mapping[str, Any], within: str = "") -> list[tuple[str, str]]:
    """Names and values; a table inside a table lends its name to its lines, what is nothing is left out."""
    found = []
    for key, value in settings.items():
        name = f"{within} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            found += facts(value, name)
        elif value is not None and value != []:
            found.append((name, _text(value)))
    return found


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        more = f" and {len(value) - ITEMS} more" if len(value) > ITEMS else ""
        return ", ".join(map(_text, value[:ITEMS])) + more
    return str(value)
