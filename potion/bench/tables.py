"""Tables: ours beside the published values, from result files alone, every mean over the same cells.

A cell is one scenario (suite, attack, |S_m|, |S_f|). Mean and sample standard deviation are taken over the cells, as in the
paper; seeds are averaged inside a cell before that, so single runs spread more than a row of several seeds shows. A row that
lacks cells, or seeds of a cell, shows what it has in brackets and no difference, because its mean is over something else;
what would fill it is written below the table.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from potion.bench.plan import Run, plan, planned_or_present
from potion.bench.results import Results
from potion.bench.suite import load_suite

__all__ = ["GROUPS", "MEASURES", "NAMES", "Average", "Row", "Spec", "Table", "make", "paper_tables", "suite_table"]

MEASURES: Final = ("healed", "damage")
GROUPS: Final[dict[str, tuple[str, Callable[[Run], bool]]]] = {
    "shares": ("10 % to 100 % known", lambda run: run.known > 1 and 10 * run.known >= run.poisoned),
    "one": ("one known", lambda run: run.known == 1),
    "all": ("all known", lambda run: run.known == run.poisoned),
    "every": ("every share", lambda run: True),
}
NAMES: Final = {
    "xlf": "XLF + PTN", "lf": "LF + PTN", "ssd": "SSD + PTN", "ssd_grid": "SSD (grid)", "assd": "SSD (adaptive)",
    "retrain": "EU (retrain)", "finetune": "CF (fine-tune)", "scrub": "SCRUB", "bad_teacher": "Bad Teacher",
    "none": "None", "antidote": "Antidote", "xlf_guarded": "XLF + PTN, guarded", "xlf_trusted": "XLF, trusted stop",
}  # fmt: skip
Cell = tuple[str, str, int, int]


@dataclass(frozen=True)
class Spec:
    """A table to make: which suites and groups of columns, and rows of published values (healed, std, damage, std, ...)."""

    name: str
    title: str
    suites: tuple[str, ...]
    groups: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    label: str = ""


@dataclass(frozen=True)
class Average:
    """Ours for one measure: ``found`` of ``wanted`` cells have all their seeds; ``published`` is the paper's."""

    mean: float | None
    std: float | None
    found: int
    wanted: int
    published: tuple[float, float] | None

    @property
    def complete(self) -> bool:
        """Whether the mean is over all cells, and so may be compared."""
        return self.found == self.wanted > 0

    @property
    def difference(self) -> float | None:
        """Ours minus the published mean."""
        if self.mean is None or self.published is None or not self.complete:
            return None
        return self.mean - self.published[0]


@dataclass(frozen=True)
class Row:
    """One method: ``averages`` in the order of groups and measures; ``seeds`` is how many each cell has at least."""

    method: str
    averages: tuple[Average, ...]
    seeds: int

    @property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return all(average.complete for average in self.averages)

    @property
    def name(self) -> str:
        """The method as people call it."""
        method, _, step = self.method.partition("@")
        return NAMES.get(method, method) + (f", step {step}" if step else "")


@dataclass(frozen=True)
class Table:
    """A finished table; ``missing`` holds, for each row that lacks cells, what would fill it."""

    spec: Spec
    rows: tuple[Row, ...]
    missing: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def published(self) -> bool:
        """Whether the paper has such a table."""
        return bool(self.spec.rows)

    def to_dict(self) -> dict[str, Any]:
        """The table, ready for JSON."""
        return asdict(self)


def paper_tables() -> list[Spec]:
    """The tables of the paper."""
    content = tomllib.loads((Path(__file__).parent / "published.toml").read_text())
    return [
        Spec(
            name=name,
            title=each["title"],
            suites=tuple(each["suites"]),
            groups=tuple(each["groups"]),
            rows=tuple((row[0], tuple(row[1:])) for row in each["rows"]),
            label=each["label"],
        )
        for name, each in content.items()
    ]


def tables_for(suites: Sequence[str], *, everything: bool) -> list[Spec]:
    """The paper's tables that some suites belong to, or all of them, and one for each suite that has none to itself."""
    paper = [spec for spec in paper_tables() if everything or set(spec.suites) & set(suites)]
    alone = {spec.suites for spec in paper}
    return paper + [suite_table(source) for source in suites if (source,) not in alone]


def suite_table(source: str) -> Spec:
    """A table of any suite, anybody's own too, without published values."""
    suite = load_suite(source)
    runs = plan(suite)
    groups = [group for group in ("shares", "one") if any(GROUPS[group][1](run) for run in runs)]
    return Spec(suite.name, suite.title, (source,), tuple(groups or ["every"]), ())


def make(spec: Spec, folder: Path) -> Table:
    """Fill a table from the result files in a folder."""
    runs = [run for source in spec.suites for run in planned_or_present(load_suite(source), folder)]
    results = Results.of(folder, runs)
    cells: dict[str, list[Cell]] = {group: [] for group in spec.groups}
    for run in runs:
        for group in spec.groups:
            if run.known and GROUPS[group][1](run) and _cell(run) not in cells[group]:
                cells[group].append(_cell(run))
    published = dict(spec.rows)
    steps = any("@" in method for method in published)
    extra = [] if steps else list(dict.fromkeys(run.method for run in runs if results.has(run)))
    rows = tuple(
        _row(method, spec, cells, _values(method, runs, results, cells), published.get(method, ()))
        for method in dict.fromkeys([*published, *extra])
    )
    models = {results.records[run.path]["scenario"]["model"] for run in runs if results.has(run)}
    return Table(spec, rows, tuple(_missing(rows, spec, runs, results)), tuple(sorted(models)))


def _row(
    method: str,
    spec: Spec,
    cells: dict[str, list[Cell]],
    values: dict[Cell, _Seeds],
    paper: Sequence[float],
) -> Row:
    averages = []
    pairs = iter(zip(paper[::2], paper[1::2], strict=True))
    for group in spec.groups:
        for measure in MEASURES:
            found = [
                fmean(each[measure] for each in values[cell].scores) for cell in cells[group] if values[cell].scores
            ]
            averages.append(
                Average(
                    mean=fmean(found) if found else None,
                    std=stdev(found) if len(found) > 1 else None,
                    found=sum(values[cell].complete for cell in cells[group]),
                    wanted=len(cells[group]),
                    published=next(pairs, None),
                )
            )
    here = [len(values[cell].scores) for group in spec.groups for cell in cells[group] if values[cell].scores]
    return Row(method, tuple(averages), min(here, default=0))


def _values(method: str, runs: Iterable[Run], results: Results, cells: dict[str, list[Cell]]) -> dict[Cell, _Seeds]:
    """The scores of a method in each cell; the poisoned model itself counts for every share."""
    name, _, step = method.partition("@")
    values: dict[Cell, _Seeds] = defaultdict(_Seeds)
    for run in runs:
        if run.method != name:
            continue
        everywhere = {cell for group in cells.values() for cell in group if cell[:3] == _cell(run)[:3]}
        score = _score(run, results, step)
        for cell in everywhere if name == "none" else [_cell(run)]:
            values[cell].planned += 1
            values[cell].scores += [] if score is None else [score]
    return values


def _score(run: Run, results: Results, step: str) -> dict[str, Any] | None:
    """The run's scores, or with a ``step`` those of the point of its sweep that has it."""
    if not results.has(run) or not step:
        return results.records.get(run.path)
    return next((point for point in results.records[run.path]["points"] if _stands_for(point, step, run)), None)


@dataclass
class _Seeds:
    """The scores of a method in one cell, one a seed, and how many seeds were planned."""

    scores: list[dict[str, float]] = field(default_factory=list)
    planned: int = 0

    @property
    def complete(self) -> bool:
        return len(self.scores) == self.planned > 0


def _stands_for(point: dict[str, Any], step: str, run: Run) -> bool:
    assert run.search is not None
    return float(point["step"]) == float(step) and float(point["rho"]) == run.search.rho


def _missing(rows: Iterable[Row], spec: Spec, runs: Sequence[Run], results: Results) -> Iterator[str]:
    """What would fill the rows that lack cells: for each suite the runs that are not there, and what it never plans."""
    lacking = list(dict.fromkeys(row.method.partition("@")[0] for row in rows if not row.complete))
    for source in spec.suites:
        name = load_suite(source).name
        planned = Counter(run.method for run in runs if run.suite == name)
        gone = Counter(run.method for run in runs if run.suite == name and not results.has(run))
        wanted = [method for method in lacking if gone[method]]
        if wanted:
            counts = ", ".join(f"{method} {gone[method]} of {planned[method]}" for method in wanted)
            only = "".join(f" --only {method}" for method in wanted)
            yield f"{name} lacks runs ({counts}): `potion bench run {source}{only}`"
        if absent := [method for method in lacking if not planned[method]]:
            yield f"{name} does not plan {', '.join(absent)}"
    every = [method for method in lacking if any(run.method == method for run in runs)]
    if partly := [method for method in every if all(results.has(run) for run in runs if run.method == method)]:
        yield f"planned for some of the shares only: {', '.join(partly)}"


def _cell(run: Run) -> Cell:
    return run.suite, run.attack.label, run.poisoned, run.known
