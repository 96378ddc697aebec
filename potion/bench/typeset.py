"""A finished table as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path

from potion.bench.tables import GROUPS, MEASURES, Average, Table
from potion.files import replacing

__all__ = ["as_csv", "as_latex", "as_markdown", "write_table"]


def write_table(table: Table, folder: Path) -> None:
    """NAME.md, NAME.tex and NAME.csv."""
    for suffix, text in (("md", as_markdown(table)), ("tex", as_latex(table)), ("csv", as_csv(table))):
        replacing(folder / f"{table.spec.name}.{suffix}", partial(Path.write_text, data=text))


def as_markdown(table: Table) -> str:
    """A heading, the table, and what is missing from it."""
    titles = [f"{measure}, {GROUPS[group][0]}" for group in table.spec.groups for measure in MEASURES]
    beside = ["paper", "Δ"] if table.published else []
    head = ["method", *(column for title in titles for column in (title, *beside)), "seeds"]
    lines = [f"### {table.spec.title}", "", "| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for row in table.rows:
        cells = [text for average in row.averages for text in _cells(average, table.published)]
        lines.append("| " + " | ".join([row.name, *cells, str(row.seeds or "-")]) + " |")
    if table.models:
        lines += [
            "",
            f"Trained here: {', '.join(table.models)}. EU with all poison known is the reference: 100 % by definition.",
        ]
    if table.missing:
        lines += [
            "",
            "Missing (values in brackets are over the runs that are there, and not comparable; so many cells have all "
            "of their seeds):",
            "",
        ]
        lines += [f"- {note}" for note in table.missing]
    return "\n".join(lines) + "\n"


def as_latex(table: Table) -> str:
    """A table environment; what is missing goes into comments."""
    beside = ["paper", r"$\Delta$"] if table.published else []
    names = {"healed": "Poison healed", "damage": "Model damage"}
    width = len(MEASURES) * (1 + len(beside))
    heads = " & ".join(rf"\multicolumn{{{width}}}{{c}}{{{_tex(GROUPS[group][0])}}}" for group in table.spec.groups)
    titles = " & ".join(" & ".join([names[measure], *beside]) for _ in table.spec.groups for measure in MEASURES)
    label = f"{table.spec.label}_ours" if table.spec.label else f"tab:{table.spec.name}"
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (width * len(table.spec.groups))}}}",
        r"\hline",
        rf" & {heads} \\",
        rf"Method & {titles} \\ \hline",
    ]
    for row in table.rows:
        cells = [_tex(text) for average in row.averages for text in _cells(average, table.published)]
        lines.append(" & ".join([_tex(row.name), *cells]) + r" \\")
    lines += [
        r"\hline",
        r"\end{tabular}",
        rf"\caption{{{_tex(table.spec.title)}}}",
        rf"\label{{{label}}}",
        r"\end{table}",
    ]
    return "\n".join([*lines, *(f"% missing: {note}" for note in table.missing)]) + "\n"


def as_csv(table: Table) -> str:
    """One line for each method, group and measure, with everything that is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    ours, paper = ("mean", "std", "cells", "of", "seeds"), ("published", "published_std", "difference")
    writer.writerow(["method", "known", "measure", *ours, *paper])
    for row in table.rows:
        averages = iter(row.averages)
        for group in table.spec.groups:
            for measure in MEASURES:
                each = next(averages)
                published = each.published or (None, None)
                numbers = [each.mean, each.std, each.found, each.wanted, row.seeds, *published, each.difference]
                texts = ["" if number is None else f"{number:.6g}" for number in numbers]
                writer.writerow([row.method, group, measure, *texts])
    return out.getvalue()


def _cells(average: Average, published: bool) -> list[str]:
    """Ours, and where the table has them the published value and the difference."""
    if average.mean is None:
        ours = f"missing (0 of {average.wanted})"
    else:
        ours = f"{average.mean:z.2f}" + (f" ± {average.std:.2f}" if average.std is not None else "")
        if not average.complete:
            ours = f"({ours}; {average.found} of {average.wanted})"
    if not published:
        return [ours]
    paper = "-" if average.published is None else f"{average.published[0]:.2f} ± {average.published[1]:.2f}"
    return [ours, paper, "-" if average.difference is None else f"{average.difference:+.2f}"]


def _tex(text: str) -> str:
    for plain, tex in (("%", r"\%"), ("±", r"$\pm$"), ("_", r"\_"), ("Δ", r"$\Delta$")):
        text = text.replace(plain, tex)
    return text
