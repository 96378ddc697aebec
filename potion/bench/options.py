"""What the commands of ``potion bench`` share: their options, and the way from a suite's name to runs and results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potion.terminal import fail

if TYPE_CHECKING:
    from potion.bench.plan import Run
    from potion.bench.results import Results

__all__ = [
    "RESULTS",
    "Folder",
    "Suites",
    "everything",
    "name_problems",
    "named_or_present",
    "planned",
    "print_table",
    "results_of",
]

Suites = Annotated[list[str] | None, typer.Argument(help="Suites by name or path; default: all that have results.")]
Folder = Annotated[Path, typer.Option("--results", help="The folder with the result files.")]
RESULTS = Path("results")


def planned(suite: str, only: list[str] | None, seeds: str | None, shard: str | None) -> list[Run]:
    """The runs of a suite that the options choose."""
    from potion.bench.plan import plan, selected, sharded
    from potion.bench.schema import SuiteError
    from potion.bench.suite import load_suite

    try:
        patterns = [pattern.strip() for each in only or [] for pattern in each.split(",")]
        runs = selected(plan(load_suite(suite), _numbers(seeds)), patterns)
    except SuiteError as error:
        fail(str(error))
    if shard is None:
        return runs
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        fail(f"--shard {shard}: give a part and the number of parts, like 2/4")
    return sharded(runs, int(match[1]), int(match[2]))


def everything(suite: str, results: Path) -> list[Run]:
    """All runs of a suite, and those with other seeds that have results."""
    from potion.bench.plan import planned_or_present
    from potion.bench.schema import SuiteError
    from potion.bench.suite import load_suite

    try:
        return planned_or_present(load_suite(suite), results)
    except SuiteError as error:
        fail(str(error))


def results_of(
    folder: Path, runs: list[Run], others: Sequence[Run] = (), *, quiet: bool, writable: bool = False
) -> Results:
    """What the folder holds of the runs; what does not count is named unless ``quiet``."""
    from potion.bench.results import Results
    from potion.files import writable_folder

    try:
        found = Results.of(writable_folder(folder) if writable else folder, runs, others)
    except OSError as error:
        fail(str(error))
    if not quiet:
        name_problems(found.problems)
    return found


def named_or_present(suites: list[str] | None, results: Path) -> list[str]:
    """The suites asked for, or all shipped ones that have a folder with results."""
    from potion.bench.suite import shipped_suites

    if suites:
        return suites
    present = [name for name in shipped_suites() if (results / name).is_dir()]
    if not present:
        fail(
            f"no results of any suite in {results}: run one (potion bench run smoke), or name the folder with --results"
        )
    return present


def print_table(titles: list[str], rows: list[list[str]]) -> None:
    """A table for the terminal, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for place, title in enumerate(titles):
        numbers = all(row[place].replace(".", "").isdigit() for row in rows)
        table.add_column(title, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def name_problems(problems: dict[str, str]) -> None:
    """Say by name which files are not results, and why."""
    for name, why in problems.items():
        typer.echo(f"potion: not counted: {name}: {why}", err=True)


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        fail(f"--seeds {text}: give whole numbers like 0,1,2")
    return numbers
