"""What the page of a results folder shows: every run as one short row; the page averages, filters, sorts and draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from potion.bench.plan import plan
from potion.bench.results import ResultError, read_record
from potion.bench.suite import load_suite, shipped_suites
from potion.bench.tables import NAMES
from potion.report.checks import ReportError
from potion.report.page import render

__all__ = ["board_page", "read_folder", "read_result"]

Record = dict[str, Any]


def read_result(path: Path) -> Record:
    """One result of the benchmark, checked further for what the page uses."""
    record = read_record(path)
    scenario = record["scenario"]
    texts = (record["suite"], record["method"], scenario.get("attack"))
    counts = [scenario.get(key) for key in ("poisoned", "known", "seed")]
    if not all(isinstance(text, str) for text in texts) or not all(type(count) is int for count in counts):
        raise ResultError("JSON, but not a result of this benchmark: its scenario is not complete")
    if scenario["poisoned"] < 1 or scenario["known"] != record["known"]:
        raise ResultError("its scenario does not fit: poisoned must be at least 1, and known the same as in the result")
    return record


def read_folder(folder: Path) -> tuple[list[Record], dict[str, str]]:
    """The benchmark's results below a folder; and by name, why other JSON files are none.

    As in the tables, a file counts only where its suite, if it is one of the package, still has such a run, and where it is
    the first of that run.
    """
    records: list[Record] = []
    problems: dict[str, str] = {}
    seen: dict[tuple[str, str], str] = {}
    for path in sorted(folder.rglob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            record = read_result(path)
            name, run = path.relative_to(folder).as_posix(), (record["suite"], record["key"])
            planned = _planned(record["suite"], record["scenario"]["seed"])
            if planned is not None and record["key"] not in planned:
                raise ResultError("made with other settings than the suite has now")
            if run in seen:
                raise ResultError(f"the same run as {seen[run]}, which counts")
            seen[run] = name
            records.append(record)
        except ResultError as problem:
            problems[path.relative_to(folder).as_posix()] = str(problem)
    return records, problems


def board_page(records: Sequence[Record], left_out: int = 0) -> str:
    """The page of some results; ``left_out`` is how many files beside them are none."""
    if not records:
        raise ReportError("there are no results of the benchmark to show")
    suites, attacks = _distinct(records, "suite"), sorted({record["scenario"]["attack"] for record in records})
    methods = sorted({record["method"] for record in records}, key=_order)
    data = {
        "suites": suites,
        "attacks": attacks,
        "methods": [NAMES.get(method, method) for method in methods],
        "everywhere": methods.index("none") if "none" in methods else None,
        "runs": [
            [
                suites.index(record["suite"]),
                attacks.index(record["scenario"]["attack"]),
                record["scenario"]["poisoned"],
                record["known"],
                methods.index(record["method"]),
                record["scenario"]["seed"],
                *(round(float(record[key]), 3) for key in ("healed", "damage", "clean_accuracy")),
            ]
            for record in records
        ],
    }
    view = {
        "title": "Benchmark results",
        "runs": len(records),
        "suites": suites,
        "attacks": len(attacks),
        "methods": len(methods),
        "seeds": len({record["scenario"]["seed"] for record in records}),
        "devices": _distinct([record["provenance"] for record in records], "device"),
        "versions": _distinct([record["provenance"].get("versions", {}) for record in records], "potion"),
        "left_out": left_out,
    }
    return render("board.html", view, data, ["board_data.js", "board.js"])


@cache
def _planned(suite: str, seed: int) -> frozenset[str] | None:
    """The keys of a suite's runs with a seed; nothing where the suite is somebody's own and not at hand."""
    return frozenset(run.key for run in plan(load_suite(suite), [seed])) if suite in shipped_suites() else None


def _order(method: str) -> tuple[int, str]:
    """Known methods in the order of the tables, others after them."""
    names = list(NAMES)
    return names.index(method) if method in names else len(names), method


def _distinct(tables: Sequence[Record], key: str) -> list[str]:
    return sorted({str(each[key]) for each in tables if each.get(key) is not None})
