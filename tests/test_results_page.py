"""docs/results.md comes from the result files alone, and the claims on it say what these say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark import asked

from potion.bench.claims import claims
from potion.bench.plan import plan
from potion.bench.repeats import repeats
from potion.bench.results_page import results_page
from potion.bench.searches import by_threshold, strategies
from potion.bench.suite import load_suite, shipped_suites
from potion.bench.tables import make, paper_tables, tables_for
from potion.bench.typeset import as_markdown

ROOT = Path(__file__).parent.parent


def test_the_page_is_made_of_the_results():
    present = [name for name in shipped_suites() if (ROOT / "results" / name).is_dir()]
    drawn = [path.stem for path in (ROOT / "docs/figures").glob("*.svg")]
    made = results_page(present, ROOT / "results", drawn)
    assert made == (ROOT / "docs/results.md").read_text(), "potion bench tables --page docs/results.md"


def run(method, known, healed, damage, poisoned=100, seed=0):
    scenario = {"poisoned": poisoned, "seed": seed}
    return {"method": method, "known": known, "healed": healed, "damage": damage, "scenario": scenario}


def paper(suite):
    return next(spec for spec in paper_tables() if suite in spec.suites)


def test_a_page_never_takes_the_place_of_something_else(tmp_path):
    (tmp_path / "mine.md").write_text("# Mine")
    done = asked("tables", "smoke", "--results", tmp_path, "--out", tmp_path / "tables", "--page", tmp_path / "mine.md")
    assert (done.exit_code, (tmp_path / "mine.md").read_text()) == (2, "# Mine")
    assert "is there already, and no page of results" in done.stderr


def test_figures_of_a_suite_without_results_are_refused(tmp_path):
    done = asked("figures", "smoke", "--results", tmp_path, "--out", tmp_path / "figures")
    assert done.exit_code == 2
    assert "no results of smoke in" in done.stderr


def test_claims_compare_the_cells_and_seeds_that_all_have():
    records = [
        run("none", 0, 10, 0),
        *(run(method, known, *scores) for known in (10, 50) for method, scores in {
            "xlf": (94, -1), "lf": (90, -2), "ssd": (80 + known / 10, -3),
        }.items()),
        *(run(method, 50, 92, -1, seed=1) for method in ("xlf", "lf", "ssd")),  # the mean of both seeds counts once
        run("ssd", 10, 0, -50, seed=2),  # the others have no such seed
        run("xlf", 90, 0, -80),  # the others have no such cell
        run("ssd_grid", 10, 70, -9),
        run("retrain", 10, 20, 0), run("retrain", 100, 100, 0),
        run("xlf", 1, 60, -1), run("lf", 1, 70, -1), run("ssd", 1, 10, 0),
    ]  # fmt: skip
    best, grid, retrained, one, stable = claims(records, paper("goel-cifar10"))
    assert best.paper == "XLF + PTN heals most and costs least."
    told = "XLF + PTN 93.5 % at -1.0, LF + PTN 90.5 % at -1.8, SSD + PTN 84.8 % at -2.5 (2 cells, 1 to 2 seeds)."
    assert best.found == told
    assert best.held
    assert grid.found == "SSD + PTN 81.0 % at -3.0, SSD (grid) 70.0 % at -9.0 (1 cell, 1 seed)."
    assert grid.held
    assert retrained.found.startswith("EU (retrain) 20.0 % at +0.0, XLF + PTN 94.0 % at -1.0 (1 cell")
    assert not one.held
    assert one.found.endswith("the poisoned model 10.0 %.")
    assert "LF + PTN 0.7" in stable.found
    assert not any(claim.held for claim in claims([run("none", 0, 10, 0), *lost(records)], paper("goel-cifar10")))


def lost(records):
    """The same, with XLF below all others."""
    return [
        record | ({"healed": 5.0 * (record["known"] > 10), "damage": -60.0} if record["method"] == "xlf" else {})
        for record in records
        if record["method"] in ("xlf", "lf", "ssd")
    ]


def test_what_is_claimed_for_a_suite_is_what_the_papers_own_table_says():
    one = [run("none", 0, 13, 0), run("xlf", 1, 51, -7), run("lf", 1, 56, -4), run("ssd", 1, 13.5, 0)]
    (claim,) = claims(one, paper("vit-imagenette-sine"))
    assert (claim.paper, claim.held) == ("From one sample LF + PTN heals most; SSD does nothing.", True)
    (claim,) = claims([*one[:3], run("ssd", 1, 34, 0)], paper("vit-imagenette-sine"))
    assert not claim.held
    assert claims(one, paper("vit-imagenette-moving")) == [], "the paper has no such table"
    more = [run("xlf", 10, 83, -2), run("lf", 10, 80, -4), run("ssd", 10, 55, -1)]
    (claim,) = claims(more, paper("vit-imagenette-sine"))
    assert (claim.paper, claim.held) == ("XLF + PTN heals most, SSD + PTN costs least.", True)


@pytest.mark.parametrize("records", [[], [run("none", 0, 10, 0)], [run("xlf", 10, 90, -1)]])
def test_where_nothing_can_be_compared_nothing_is_claimed(records):
    assert claims(records, paper("goel-cifar10")) == []


def test_the_thresholds_are_compared_over_cells():
    def record(known, *scores, poisoned=100):
        points = [
            {"rho": rho, "step": 1.1, "healed": h, "damage": d} for rho, (h, d) in zip((0.2, 0.5), scores, strict=True)
        ]
        return {"method": "xlf", "known": known, "scenario": {"poisoned": poisoned}, "points": points}

    records = [
        record(10, (90, -1), (80, 0)),
        record(10, (92, -3), (80, 0)),  # another seed of the same cell
        record(10, (71, 0), (60, -2), poisoned=500),
        record(1, (50, 0), (40, 0.5)),
        {"method": "none", "known": 0, "scenario": {"poisoned": 100}},
    ]
    heading, _, table = by_threshold("sensitivity-rho", records)
    assert heading.startswith("## Where to stop?")
    assert table.splitlines()[0] == "| known | method | step | cells | rho = 0.2 | rho = 0.5 |"
    assert table.splitlines()[2:] == [
        "| 10 % to 100 % | XLF + PTN | 1.1 | 2 of 30 | 81.0 / -1.0 | 70.0 / -1.0 |",
        "| one | XLF + PTN | 1.1 | 1 of 3 | 50.0 / +0.0 | 40.0 / +0.5 |",
    ]
    whole = [record(1, (50, 0), (40, 0), poisoned=size) for size in (100, 500, 1000)]
    assert by_threshold("sensitivity-rho", whole)[2].splitlines()[2].startswith("| one | XLF + PTN | 1.1 | 3 |")
    assert by_threshold("goel-cifar10", records[4:]) == []


def test_walking_and_bisecting_are_compared_by_where_they_end():
    def point(walked, bisected):
        ends = ({"s": s} if s else None for s in (walked, bisected))
        return {"steps": 9, "chosen": next(ends), "bisect": {"steps": 4, "chosen": next(ends)}}

    records = [
        {"method": "xlf", "points": [point(2.0, 2.0), point(2.0, 4.0), point(None, None)]},
        {"method": "lf", "points": [{"steps": 3, "chosen": None}]},
        {"method": "none"},
    ]
    heading, table = strategies("sensitivity-step", records)
    assert heading.startswith("## Walking or bisecting?")
    assert table.splitlines()[2:] == ["| XLF + PTN | 3 | 2 | 9.0 | 4.0 |"]
    assert strategies("goel-cifar10", records[1:]) == []


def test_second_results_stand_beside_the_first_and_are_not_counted(tmp_path):
    suite = load_suite("goel-cifar10")
    runs = plan(suite)
    for known, apart in (("f10", 1.0), ("f20", -3.0), ("f1", 9.0)):
        path = f"goel-cifar10/badnet-m100-{known}/xlf-s0.json"
        record = json.loads((ROOT / "results" / path).read_text()) | {"healed": 90.0, "damage": -1.0}
        for folder, healed in ((tmp_path, 90.0), (tmp_path / "repeated", 90.0 + apart)):
            (folder / path).parent.mkdir(parents=True)
            (folder / path).write_text(json.dumps(record | {"healed": healed}))
    (section,) = repeats(suite.title, runs, tmp_path)
    assert "second result of 3 runs; 3 of their victims" in section
    assert section.splitlines()[-2:] == [
        "| XLF + PTN | 10 % to 100 % | 2 | 90.0 | 89.0 | 2.0 (3.0) | -1.0 | -1.0 | 0.0 (0.0) |",
        "| XLF + PTN | one | 1 | 90.0 | 99.0 | 9.0 (9.0) | -1.0 | -1.0 | 0.0 (0.0) |",
    ]
    assert repeats(suite.title, runs, tmp_path / "repeated") == []
    assert "99.0" not in as_markdown(make(next(iter(tables_for(["goel-cifar10"], everything=False))), tmp_path))
