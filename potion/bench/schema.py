"""Dataclasses out of TOML tables, with errors that name file and key."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["SuiteError", "fill", "unknown_key"]

T = TypeVar("T")


class SuiteError(ValueError):
    """A mistake in a suite file, in one sentence that names the file and the key."""


def fill(cls: type[T], table: Any, where: str) -> T:
    """An instance of the dataclass ``cls`` with the values of a TOML table; ``where`` is the file and the table's key."""
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where} must be a table, got {table!r}")
    hints, values = get_type_hints(cls), {}
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key, value in table.items():
        if key not in fields:
            raise SuiteError(f"{where}.{key}: {unknown_key(key, fields)}")
        values[key] = _converted(value, hints[key], f"{where}.{key}")
    for name, field in fields.items():
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SuiteError(f"{where}.{name} is missing")
    try:
        return cls(**values)
    except (ValueError, TypeError) as error:
        raise SuiteError(f"{where}: {error}") from error


def unknown_key(key: str, known: Any) -> str:
    """What to say about a key that nobody knows."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return "unknown key; " + (f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}")


def _converted(value: Any, hint: Any, where: str) -> Any:
    """``value`` as the annotation wants it: lists become tuples, whole numbers floats; everything else is refused."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        for choice in inner:
            try:
                return _converted(value, choice, where)
            except SuiteError:
                continue
        raise SuiteError(f"{where} must be {_spelled(hint)}, got {value!r}")
    if origin is tuple:
        if not isinstance(value, list):
            raise SuiteError(f"{where} must be a list, got {value!r}")
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) != len(value):
            raise SuiteError(f"{where} must have {len(kinds)} values, got {value!r}")
        return tuple(
            _converted(each, kind, f"{where}[{k}]") for k, (each, kind) in enumerate(zip(value, kinds, strict=True))
        )
    fits = {
        Literal: lambda: value in inner,
        dict: lambda: isinstance(value, dict),
        None: lambda: (
            (isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool))
            or (hint is float and isinstance(value, int) and not isinstance(value, bool))
        ),
    }[origin]()
    if not fits:
        raise SuiteError(f"{where} must be {_spelled(hint)}, got {value!r}")
    return float(value) if hint is float else value


def _spelled(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", types.NoneType: ""}
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(filter(None, map(_spelled, get_args(hint))))
    return names.get(hint, "a list" if get_origin(hint) is tuple else "a table")
