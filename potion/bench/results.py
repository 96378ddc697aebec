"""The results folder: one JSON a run, checked when it is read; what is not a result is named and never counted."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from potion.bench.plan import Run
from potion.files import write_json

__all__ = ["ResultError", "Results", "read_record"]

NUMBERS: Final = ("clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage", "seconds")
TABLES: Final = ("scenario", "victim", "reference", "timings", "notes", "run", "provenance")


class ResultError(ValueError):
    """Why a file does not count, in a few words."""


@dataclass
class Results:
    """The results of some runs that lie in a folder; ``problems`` says by name which files do not count, and why."""

    folder: Path
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: str | os.PathLike[str], runs: Iterable[Run], others: Iterable[Run] = ()) -> Results:
        """Read what there is of ``runs``, and look at everything else in their suites' folders.

        Files of the runs ``others`` are nobody's business here, but no strangers either.
        """
        found = cls(Path(folder))
        planned = {run.path: run for run in runs}
        expected = {run.path for run in others}
        for suite in sorted({run.suite for run in planned.values()}):
            for path in sorted((found.folder / suite).rglob("*")):
                name = path.relative_to(found.folder).as_posix()
                if path.is_dir() or path.name.startswith("."):
                    if path.name.endswith(".part"):
                        found.problems[name] = "half-written: a runner died while writing it, or is at it now"
                elif name in planned:
                    found._add(name, planned[name])
                elif path.suffix == ".json" and name not in expected:
                    found._add_stranger(name)
        return found

    def has(self, run: Run) -> bool:
        """Whether the result of the run is there."""
        return run.path in self.records

    def write(self, run: Run, record: dict[str, Any]) -> None:
        """Add a result; a file of that name that is no result of this run is put aside, not lost."""
        path = self.folder / run.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            place = next(k for k in range(1, 10_000) if not path.with_suffix(f".json.aside-{k}").exists())
            path.replace(path.with_suffix(f".json.aside-{place}"))
        write_json(path, record)
        self.records[run.path] = record
        self.problems.pop(run.path, None)

    def reuse(self, runs: Iterable[Run]) -> int:
        """Take over what other suites in the folder have of the very same runs, seconds and provenance included."""
        missing = [run for run in runs if not self.has(run)]
        for run in missing:
            found = self.anywhere(run)
            if found is not None and not self.look(run):  # or by another runner, just now
                self.write(run, found | {"suite": run.suite, "run": run.to_dict()})
        return sum(self.has(run) for run in missing)

    def anywhere(self, run: Run) -> dict[str, Any] | None:
        """The record of the very same run, in whichever suite of the folder it lies."""
        for path in sorted(self.folder.glob(f"*/{Path(run.path).relative_to(run.suite)}")):
            try:
                record = read_record(path)
            except ResultError:
                continue  # whose problem it is, its own suite says
            if record["key"] == run.key:
                return record
        return None

    def look(self, run: Run) -> bool:
        """Whether the run is finished by now, here or by somebody else."""
        if not self.has(run) and (self.folder / run.path).exists():
            self._add(run.path, run)
        return self.has(run)

    def _add(self, name: str, run: Run) -> None:
        try:
            record = read_record(self.folder / name)
            if record["key"] != run.key:
                raise ResultError("made with other settings than the suite has now")
            self.records[name] = record
        except ResultError as problem:
            self.problems[name] = str(problem)

    def _add_stranger(self, name: str) -> None:
        try:
            read_record(self.folder / name)
            self.problems[name] = "a result, but of no run of the suite"
        except ResultError as problem:
            self.problems[name] = str(problem)


def read_record(path: Path) -> dict[str, Any]:
    """The record in a result file; :class:`ResultError` where it is none."""
    try:
        record = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ResultError("not complete JSON: truncated or damaged") from None
    except OSError as error:
        raise ResultError(f"cannot be read: {error.strerror}") from error
    if not isinstance(record, dict):
        raise ResultError("JSON, but not a result of this benchmark")
    missing = [
        key for key in ("suite", "key", "method", "known", "status", *NUMBERS, *TABLES, "trace") if key not in record
    ]
    if missing:
        raise ResultError(f"JSON, but not a result of this benchmark: no {', '.join(missing[:3])}")
    for key in NUMBERS:
        value = record[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ResultError(f"{key} is no number: {value!r}")
    for key in TABLES:
        if not isinstance(record[key], dict):
            raise ResultError(f"{key} is no table")
    return record
