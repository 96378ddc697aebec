"""The known poison, from a list of indices or file names to indices."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from potion.data import Encoded
from potion.validation import known_indices

__all__ = ["known_from"]

COLUMNS: Final = ("index", "file", "path", "name", "filename", "file_name")
"""Headings of a CSV file under which the samples are looked for; without such a heading the first column counts."""

POISON: Final = "poison"
"""Heading of the column in which ``potion discover`` says 1 for poison and 0 for all other suspects."""


def known_from(source: str, encoded: Encoded) -> list[int]:
    """The samples that a text, CSV or JSON file lists (or ``17,4021`` itself), as indices into the data.

    A file name may be as short as is clear: ``7.png``, ``cat/7.png`` and ``train/cat/7.png`` are all ends of one path.
    """
    entries = _entries(source)
    if not entries:
        raise ValueError(f"--known {source}: the list is empty; name at least one poisoned sample")
    if not any(isinstance(entry, str) for entry in entries):
        return _checked(source, [entry for entry in entries if isinstance(entry, int)], len(encoded))
    names = encoded.names()
    if names is None:
        wrong = next(entry for entry in entries if isinstance(entry, str))
        raise ValueError(f"--known {source}: {wrong!r} is a file name, but this data has none; list indices instead")
    return _checked(source, _found(source, entries, names), len(encoded))


def _entries(source: str) -> list[int | str]:
    path, parts = Path(source), source.split(",")
    if not source.strip():
        return []
    if all(_is_index(part.strip()) for part in parts) and (len(parts) > 1 or not path.is_file()):
        return [int(part) for part in parts]  # before the path is looked at: many indices are too long for one
    if not path.exists() or path.is_dir():  # anything else can be read, a pipe too
        what = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"--known {source}: {what}; give a text, CSV or JSON list, or indices like 17,4021")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"--known {source}: not a text file; give a text, CSV or JSON list") from None
    if path.suffix.lower() == ".json":
        return _from_json(source, text)
    if path.suffix.lower() == ".csv":
        return _from_csv(source, text)
    lines = (line.strip() for line in text.splitlines())
    return [_entry(_unquoted(line)) for line in lines if line and not line.startswith("#")]


def _from_json(source: str, text: str) -> list[int | str]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"--known {source}: not JSON: {error}") from None
    if not isinstance(found, list) or not all(type(entry) in (int, str) for entry in found):
        raise ValueError(f"--known {source}: must be a JSON list of indices and file names, like [17, 4021]")
    return found


def _from_csv(source: str, text: str) -> list[int | str]:
    """The column with the samples; where another one is called ``poison``, as in a list of suspects, only its ones."""
    reader = csv.reader(text.splitlines())
    rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)]
    headings = [cell.lower() for cell in rows[0][1]] if rows else []
    column = next((column for column in COLUMNS if column in headings), None)
    place = headings.index(column) if column else 0
    found = []
    for line, row in rows[1:] if column else rows:
        cells = [*row, *[""] * (len(headings) - len(row))]
        poison = cells[headings.index(POISON)] if column and POISON in headings else "1"
        if not cells[place]:
            raise ValueError(f"--known {source}: line {line} names no sample: its {column or 'first'} column is empty")
        if poison not in ("0", "1"):
            raise ValueError(f"--known {source}: line {line} has {poison!r} in the column poison; write 1 or 0")
        if poison == "1":
            found.append(_entry(cells[place]))
    return found


def _entry(text: str) -> int | str:
    return int(text) if _is_index(text) else text


def _is_index(text: str) -> bool:
    """Whether it is a number; one below zero is no file either, and is refused as an index."""
    return text.removeprefix("-").isdecimal()


def _unquoted(line: str) -> str:
    """As a shell or a list of Python's writes names."""
    return line[1:-1] if len(line) > 1 and line[0] == line[-1] and line[0] in "'\"" else line


def _found(source: str, entries: Sequence[int | str], names: Sequence[str]) -> list[int]:
    ends: dict[str | None, list[int]] = {}
    for index, name in enumerate(names):
        ends.setdefault(PurePath(name).name, []).append(index)
    indices, missing = [], []
    for entry in entries:
        if isinstance(entry, int):
            indices.append(entry)
            continue
        parts = PurePath(os.path.normpath(entry)).parts
        end = parts[-1] if parts else None  # of "" and "./" nothing is left
        matching = [i for i in ends.get(end, ()) if _parts(names[i])[-len(parts) :] == parts]
        if len(matching) > 1:
            shown = " and ".join(names[i] for i in matching[:2])
            raise ValueError(f"--known {source}: {entry!r} could be {shown}; write more of the path")
        indices += matching
        if not matching:
            missing.append(entry)
    if missing:
        shown = ", ".join(entry or "''" for entry in missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ValueError(
            f"--known {source}: {len(missing)} of {len(entries)} file names are not in the data: {shown}; write them "
            "relative to the data folder, like class/file.png"
        )
    return indices


def _parts(name: str) -> tuple[str, ...]:
    return PurePath(os.path.abspath(name)).parts  # noqa: PTH100 (resolve would follow links, which data folders are made of)


def _checked(source: str, indices: list[int], count: int) -> list[int]:
    try:
        return known_indices(indices, count)
    except ValueError as error:
        raise ValueError(f"--known {source}: {error}") from None
