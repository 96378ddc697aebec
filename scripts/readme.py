"""Put the demo's committed results into README.md, between the markers.

    for s in 0 1 2; do potion demo --seed $s --out demo && cp demo/result.json results/demo/seed-$s.json; done
    python scripts/readme.py [--check]

With --check nothing is written; the exit code says whether the README is up to date.
"""

from __future__ import annotations

import json

from between_markers import ROOT, put

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


def spread(values: list[float]) -> str:
    """One number where the seeds agree, else the lowest and the highest."""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} … {high}"


if __name__ == "__main__":
    put("README.md", "readme.py", {"demo table": table()})
