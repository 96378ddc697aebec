"""docs/results.md: the tables beside the published ones, the claims, the figures, what it cost; from result files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potion.bench.claims import Claim, claims
from potion.bench.plan import planned_or_present
from potion.bench.repeats import repeats
from potion.bench.results import Results
from potion.bench.searches import by_threshold, strategies
from potion.bench.suite import load_suite, shipped_suites
from potion.bench.tables import Table, make, paper_tables, tables_for
from potion.bench.typeset import as_markdown

__all__ = ["results_page"]

TITLE = "# Results"
HEAD = f"""{TITLE}

Made from the files in `results/` by `potion bench tables --page docs/results.md`, and the figures by
`potion bench figures --out docs/figures`; nothing here was typed. *Healed* is the accuracy under the trigger in percent of
that of a retrain without any poison, *damage* points of clean accuracy against the poisoned model. Values in brackets are
over the runs that are there so far, and not comparable. [Reproduce the paper](reproduce.md) has the command for each table,
[Where it differs](differences.md) the reasons that were found.
"""


def results_page(suites: Sequence[str], folder: Path, figures: Sequence[str]) -> str:
    """The page; ``figures`` are the names of those that lie beside it."""
    parts = [HEAD]
    for suite in suites:
        runs = planned_or_present(load_suite(suite), folder)
        records = list(Results.of(folder, runs).records.values())
        paper = next((spec for spec in paper_tables() if suite in spec.suites and "shares" in spec.groups), None)
        if paper is not None and (found := claims(records, paper)):
            parts.append(_claims(suite, found))
        parts += by_threshold(suite, records) + strategies(suite, records)
        parts += repeats(load_suite(suite).title, runs, folder)
    tables = [make(spec, folder) for spec in tables_for(suites, everything=False)]
    parts += ["## Tables\n", *(as_markdown(table) for table in tables if _any(table))]
    for suite in suites:
        drawn = sorted(figure for figure in figures if _suite_of(figure) == suite)
        if drawn:
            title = load_suite(suite).title
            pictures = [f"![{name}](figures/{name}.svg)\n" for name in drawn]
            parts.append("\n".join([f"## Figures: {title}\n", *pictures]))
    parts.append(_cost(suites, folder))
    return "\n".join(parts)


def _suite_of(figure: str) -> str | None:
    """The suite that a figure's name begins with."""
    names = [name for name in shipped_suites() if figure == name or figure.startswith(f"{name}-")]
    return max(names, key=len, default=None)


def _any(table: Table) -> bool:
    return any(average.mean is not None for row in table.rows for average in row.averages)


def _claims(suite: str, found: Sequence[Claim]) -> str:
    lines = [f"## Does it hold? {load_suite(suite).title}", "", "| the paper | here | |", "|---|---|---|"]
    lines += [
        f"| {claim.paper} | {claim.found} | {'holds' if claim.held else '**does not hold**'} |" for claim in found
    ]
    return "\n".join(lines) + "\n"


def _cost(suites: Sequence[str], folder: Path) -> str:
    """How many runs, on what, how long they took, and which code made them; trainings of victims are not in it."""
    lines = ["## What it cost", "", "| suite | runs | seconds | on | made at |", "|---|---:|---:|---|---|"]
    for suite in suites:
        records = list(Results.of(folder, planned_or_present(load_suite(suite), folder)).records.values())
        made = [record["provenance"] for record in records]
        devices, commits = ({str(each.get(key)) for each in made} for key in ("device", "commit"))
        seconds = sum(record["seconds"] for record in records)
        shown = ", ".join(sorted(commit[:7] + "+" * commit.endswith("+") for commit in commits))
        lines.append(f"| {suite} | {len(records)} | {seconds:,.0f} | {', '.join(sorted(devices))} | {shown} |")
    lines += [
        "",
        "Seconds of the methods themselves, several side by side on one card; trainings of victims come on top. A commit "
        "with `+` had changes that were not committed yet.",
    ]
    return "\n".join(lines) + "\n"
