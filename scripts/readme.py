"""Put the committed results of the demo and of CIFAR-10 into README.md, between the markers.

    for s in 0 1 2; do potion demo --seed $s --out demo && cp demo/result.json results/demo/seed-$s.json; done
    python scripts/readme.py [--check]

With --check nothing is written; the exit code says whether the README is up to date.
"""

from __future__ import annotations

import json
from statistics import fmean

from antidote_results import SUITES, TRIGGERS, mean_and_worst, records
from between_markers import ROOT, put

from potion.bench.tables import Average, make, suite_table

HEADLINE = "goel-cifar10"
NAMES = {"none": "the poisoned model", "retrain": "retrained without the known half", "antidote": "antidote"}


def table() -> str:
    runs = [json.loads((ROOT / f"results/demo/seed-{seed}.json").read_text())["rows"] for seed in (0, 1, 2)]
    lines = [
        "| | known | clean accuracy | true class under trigger | attack works | healed | damage |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for rows in zip(*runs, strict=True):
        name = NAMES.get(rows[0]["method"], rows[0]["method"].upper() + " + PTN")
        known = "-" if rows[0]["method"] == "none" else str(rows[0]["known"])
        keys = "clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage"
        lines.append(f"| {name} | {known} | " + " | ".join(spread([row[key] for row in rows]) for key in keys) + " |")
    return "\n".join(lines) + "\n"


def headline() -> str:
    """Mean and standard deviation over the scenarios of the main suite; in brackets what lacks some of them."""
    made = make(suite_table(HEADLINE), ROOT / "results")
    lines = [
        "| | seeds | healed, 10 % to 100 % known | damage | healed, one known | damage |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in made.rows:
        lines.append(f"| {row.name} | {row.seeds} | " + " | ".join(averaged(each) for each in row.averages) + " |")
    return "\n".join(lines) + "\n"


def any_trigger() -> str:
    """What the antidote makes of each trigger, pasted and baked in: mean over sizes and seeds, worst in brackets."""
    found = [
        record for suite in (*SUITES, "unseen-cifar10", "unseen-posterise") for record in records(suite, "antidote")
    ]
    lines = [
        "| trigger | obeyed before | from one sample: healed | damage | from 10 %: healed | damage | not found |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for trigger, name in TRIGGERS.items():
        mine = [record for record in found if record["scenario"]["attack"] == trigger]
        one = [record for record in mine if record["known"] == 1]
        tenth = [record for record in mine if record["known"] * 10 == record["scenario"]["poisoned"]]
        cells = [f"{fmean(record['victim']['attack_success_rate'] for record in mine):.0f} %"]
        for some in (one, tenth):
            cells += [mean_and_worst(some, "healed"), mean_and_worst(some, "damage", 2)]
        missed = [sum(record["status"] == "not_found" for record in some) for some in (one, tenth)]
        cells.append(f"{missed[0]} of {len(one)}, {missed[1]} of {len(tenth)}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def averaged(average: Average) -> str:
    if average.mean is None:
        return "-"
    text = f"{average.mean:z.1f}" + (f" ± {average.std:.1f}" if average.std is not None else "")
    return text if average.complete else f"({text})"


def spread(values: list[float]) -> str:
    """One number where the seeds agree, else the lowest and the highest."""
    low, high = f"{min(values):z.1f}", f"{max(values):z.1f}"
    return low if low == high else f"{low} … {high}"


if __name__ == "__main__":
    put("readme.py", {"README.md": {"demo table": table(), "headline": headline(), "any trigger": any_trigger()}})
