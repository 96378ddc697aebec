"""Tables: the published numbers are the paper's, ours are means over the same cells, what is missing is said."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmark import written

from potion.bench.plan import plan
from potion.bench.suite import load_suite
from potion.bench.tables import make, paper_tables, suite_table, tables_for
from potion.bench.typeset import as_csv, as_latex, as_markdown, write_table

PAPER = Path(__file__).parent.parent.parent / "shared/paper/potion.tex"
OURS = {"XLF": "xlf", "LF": "lf", "SSD": "ssd", "EU": "retrain", "None": "none"}
TWO = """
extends = "smoke"
[[attacks]]
name = "badnet"
poisoned = [100, 200]
[[runs]]
methods = ["none", "xlf", "retrain"]
known = [1, "10%", "100%"]
seeds = [0, 1]
"""


def printed_tables(text):
    """label -> rows of (method or method@step, numbers), as the LaTeX source prints them."""
    for body in re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", text, re.S):
        rows = []
        for line in body.splitlines():
            cells = [cell.strip() for cell in line.split(r"\\")[0].split("&")]
            names = [cell for cell in cells[:2] if re.fullmatch(r"(\\potion\{\})?(XLF|LF|SSD|EU|None)", cell)]
            pairs = [re.search(r"(-?\d+\.\d+)\$\\pm\$(\d+\.\d+)", cell) for cell in cells]
            numbers = [float(number) for pair in pairs if pair for number in pair.groups()]
            if not names or not numbers:
                continue
            searched, name = names[0].startswith(r"\potion"), names[0].removeprefix(r"\potion{}")
            method = "ssd_grid" if name == "SSD" and not searched else OURS[name]
            step = re.fullmatch(r"\d\.\d+", cells[0])
            rows.append((f"{method}@{float(cells[0]):g}" if step else method, numbers))
        yield re.search(r"\\label\{(.*?)\}", body)[1], rows


@pytest.mark.skipif(not PAPER.exists(), reason=f"the paper is not at {PAPER}")
def test_the_published_numbers_are_those_of_the_paper():
    printed = dict(printed_tables(PAPER.read_text()))
    tables = {spec.label: spec for spec in paper_tables()}
    assert tables.keys() == printed.keys()
    assert len(tables) == 9
    for label, spec in tables.items():
        stepless = [row for row in printed[label] if "@" in row[0]] or printed[label]
        assert [(name, list(numbers)) for name, numbers in spec.rows] == stepless, label


@pytest.fixture
def results(tmp_path):
    """Made-up results of a small suite, whose scores say where they belong."""
    suite = written(tmp_path, TWO, "two")
    for k, run in enumerate(plan(load_suite(suite))):
        scores = {"clean_accuracy": 80.0, "clean_label_accuracy": 70.0, "attack_success_rate": 5.0}
        record = {
            "suite": run.suite, "key": run.key, "method": run.method, "known": run.known, **scores, "healed": 50.0 + k,
            "damage": -0.1 * k, "seconds": 1.0, "status": None, "trace": [], "notes": {}, "victim": scores,
            "reference": scores, "timings": {}, "provenance": {"device": "none"}, "run": run.to_dict(), "steps": None,
            "scenario": {"attack": "badnet", "model": "resnet9", "poisoned": run.poisoned, "known": run.known},
        }  # fmt: skip
        path = tmp_path / run.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return tmp_path, suite


def values(folder, method, known):
    """healed of a cell, averaged over its seeds, straight from the files."""
    found = {}
    for path in folder.rglob(f"{method}-s*.json"):
        record = json.loads(path.read_text())
        cell = (record["scenario"]["poisoned"], record["known"])
        if known(*cell):
            found.setdefault(cell, []).append(record["healed"])
    return [float(np.mean(scores)) for _, scores in sorted(found.items())]


def test_means_are_over_cells_of_averaged_seeds(results):
    folder, suite = results
    table = make(suite_table(str(suite)), folder)
    assert table.missing == ()
    row = {row.method: row for row in table.rows}["xlf"]
    shares, _, one, _ = row.averages
    expected = values(folder, "xlf", lambda poisoned, known: known > 1)
    assert len(expected) == 4
    assert shares.mean == pytest.approx(np.mean(expected))
    assert shares.std == pytest.approx(np.std(expected, ddof=1))
    assert one.mean == pytest.approx(np.mean(values(folder, "xlf", lambda poisoned, known: known == 1)))
    assert row.seeds == 2


def test_the_poisoned_model_counts_for_every_share(results):
    folder, suite = results
    row = {row.method: row for row in make(suite_table(str(suite)), folder).rows}["none"]
    cells = values(folder, "none", lambda poisoned, known: True)
    assert row.averages[0].mean == pytest.approx(np.mean(cells))
    assert (row.averages[0].found, row.averages[0].wanted) == (4, 4)


def test_missing_cells_are_missing_and_say_what_would_fill_them(results):
    folder, suite = results
    for path in folder.glob("two/badnet-m200-f200/xlf-*.json"):
        path.unlink()
    for path in folder.rglob("retrain-*.json"):
        path.unlink()
    table = make(suite_table(str(suite)), folder)
    text = as_markdown(table)
    assert "; 3 of 4)" in text
    assert f"two lacks runs (xlf 2 of 12): `potion bench run {suite} --only xlf`" in text
    assert {row.method: row.averages[0].difference for row in table.rows}["xlf"] is None


def test_a_cell_without_all_its_seeds_is_not_complete(results):
    folder, suite = results
    (folder / "two/badnet-m200-f200/xlf-s1.json").unlink()
    table = make(suite_table(str(suite)), folder)
    row = {row.method: row for row in table.rows}["xlf"]
    assert (row.averages[0].found, row.averages[0].wanted, row.averages[0].complete) == (3, 4, False)
    assert any("xlf 1 of 12" in note for note in table.missing)


def test_a_paper_table_without_results_is_all_missing(tmp_path):
    (spec,) = [spec for spec in paper_tables() if spec.name == "mean-results"]
    table = make(spec, tmp_path)
    assert all(average.found == 0 and average.published for row in table.rows for average in row.averages)
    text = as_markdown(table)
    assert "| XLF + PTN | missing (0 of 60) | 93.72 ± 1.99 | - |" in text
    assert "`potion bench run goel-cifar100 --only xlf" in text


def test_a_difference_is_ours_minus_the_published_value(results):
    folder, suite = results
    spec = suite_table(str(suite))
    spec = type(spec)(spec.name, spec.title, spec.suites, spec.groups, (("xlf", (50.0, 1.0, -1.0, 1.0)),))
    row = make(spec, folder).rows[0]
    assert row.averages[0].difference == pytest.approx(row.averages[0].mean - 50)
    assert row.averages[2].published is None


def test_three_formats_hold_the_same_numbers(results):
    folder, suite = results
    table = make(suite_table(str(suite)), folder)
    write_table(table, folder)
    assert (folder / "two.md").read_text() == as_markdown(table)
    assert (folder / "two.tex").read_text() == as_latex(table)
    rows = list(csv.DictReader(io.StringIO((folder / "two.csv").read_text())))
    (one,) = [row for row in rows if (row["method"], row["known"], row["measure"]) == ("xlf", "shares", "healed")]
    shown = f"{float(one['mean']):.2f} ± {float(one['std']):.2f}"
    assert shown in as_markdown(table)
    assert shown.replace("±", r"$\pm$") in as_latex(table)
    tex = as_latex(table)
    widths = {line.count("&") for line in tex.splitlines() if "XLF" in line or line.startswith("Method")}
    assert widths == {tex.split(r"\begin{tabular}{")[1].split("}")[0].count("r")}
    assert as_csv(table).count("\n") == 1 + len(table.rows) * 4


def test_all_tables_of_the_paper_are_made_by_default():
    assert [spec.name for spec in tables_for([], everything=True)] == [spec.name for spec in paper_tables()]
    names = [spec.name for spec in tables_for(["goel-cifar10", "smoke"], everything=False)]
    assert names == ["mean-results", "full-discovery", "goel-cifar10", "smoke"]
