"""Values out of files that anybody may have written: what is used is checked first, and named where it is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ReportError", "listed", "number", "read_json", "rows", "table"]

Table = Mapping[str, Any]


class ReportError(ValueError):
    """Why no page can be made of a file, in one sentence."""


def read_json(path: Path) -> Any:
    """The content of a JSON file; NaN and infinity are not JSON, and a page could not show them."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        raise ReportError(f"{path}: there is no such file or folder") from None
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not complete JSON, it is damaged or something else: {error}") from None


def number(data: Table, key: str) -> float | None:
    """A finite number, or nothing where the key is not there."""
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ReportError(f"{key} must be a number, got {_short(value)}")
    return float(value)


def table(data: Table, key: str) -> dict[str, Any]:
    """A table, empty where the key is not there."""
    value = data.get(key)
    if value is not None and not isinstance(value, dict):
        raise ReportError(f"{key} must be a table, got {_short(value)}")
    return value or {}


def listed(data: Table, key: str) -> list[Any]:
    """A list, empty where the key is not there."""
    value = data.get(key)
    if value is not None and not isinstance(value, list):
        raise ReportError(f"{key} must be a list, got {_short(value)}")
    return value or []


def rows(data: Table, key: str, *, numbers: tuple[str, ...] = (), texts: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A list of tables, each with these numbers and texts."""
    found = listed(data, key)
    for place, row in enumerate(found):
        if not isinstance(row, dict):
            raise ReportError(f"{key}[{place}] must be a table, got {_short(row)}")
        for name in numbers:
            if number(row, name) is None:
                raise ReportError(f"{key}[{place}] has no {name}")
        for name in texts:
            if not isinstance(row.get(name), str):
                raise ReportError(f"{key}[{place}].{name} must be a text, got {_short(row.get(name))}")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON value")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
