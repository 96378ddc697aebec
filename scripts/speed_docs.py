"""Put the committed measurements into docs/speed.md, between the markers.

    python scripts/speed_docs.py [--check]

With --check nothing is written; the exit code says whether the page is up to date.
"""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

from between_markers import ROOT, put

REAL = ("embedded", "cifar10")
"""The other workloads are made up, and there for their importances."""
LARGE = 30_000_000
"""Beside the weights of smaller models everything else is large: a batch of images, some known poison."""
TITLES = {"embedded": "embedded victim", "goel-cifar10": "CIFAR-10, ResNet-9"}


def speeds() -> str:
    lines = [
        "| workload | machine | heal | heal / plain pass | importances / plain pass | search / importances, worst | of peak "
        "| exponents |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for path in sorted((ROOT / "results/speed").glob("*.json")):
        found = json.loads(path.read_text())
        ratios = found["ratios"]
        real = found["workload"] in REAL
        numbers = [f"{found['heal_seconds']:.2f} s", f"{ratios['heal / plain pass']:.2f}"] if real else ["", ""]
        numbers += [f"{ratios['importance pass / plain pass']:.2f}"]
        worst = max(search["seconds"] for search in found["searches"].values()) / found["importance_pass_seconds"]
        numbers += [f"{worst:.1%}" if real else "", f"{ratios['achieved / peak FLOP/s']:.0%}"]
        growth = ", ".join(f"{name} {series['exponent']:.2f}" for name, series in found["scaling"].items())
        what = (
            f"{found['workload']}, {found['images']:,} images, {found['known']} known, {found['parameters']:,} weights, "
            f"{found['precision'] or 'default'} precision, {share_of(found)} of the data"
        )
        lines.append(f"| {what} | {found['machine']['device']} | {' | '.join(numbers)} | {growth} |")
    return "\n".join(lines) + "\n"


def shares() -> str:
    lines = ["| | share | healed, mean (worst) | damage, mean (worst) |", "|---|---:|---:|---:|"]
    for path in sorted((ROOT / "results/retain-share").glob("*.json")):
        rows = json.loads(path.read_text())["rows"]
        for case in dict.fromkeys(row["case"] for row in rows):
            for share in dict.fromkeys(row["share"] for row in rows):
                mine = [row for row in rows if (row["case"], row["share"]) == (case, share)]
                title = f"{TITLES[path.stem]}, {case}"
                lines.append(f"| {title} | {share:.0%} | {spread(mine, 'healed')} | {spread(mine, 'damage')} |")
    return "\n".join(lines) + "\n"


def share_of(found: dict[str, Any]) -> str:
    return "default share" if found["retain_share"] is None else f"{found['retain_share']:.0%}"


def precisions() -> str:
    lines = ["| | precision | overlap, mean (worst) | healed, mean (worst) | damage, mean (worst) |"]
    lines.append("|---|---|---:|---:|---:|")
    for path in sorted((ROOT / "results/precision").glob("*.json")):
        rows = json.loads(path.read_text())["rows"]
        for case in dict.fromkeys(row["case"] for row in rows):
            for precision in dict.fromkeys(row["precision"] for row in rows):
                mine = [row for row in rows if (row["case"], row["precision"]) == (case, precision)]
                overlap = [row["overlap"] for row in mine]
                numbers = (
                    f"{fmean(overlap):.2f} ({min(overlap):.2f}) | {spread(mine, 'healed')} | {spread(mine, 'damage')}"
                )
                lines.append(f"| {TITLES[path.stem]}, {case} | {precision} | {numbers} |")
    return "\n".join(lines) + "\n"


def memories() -> str:
    lines = [
        "| | weights | activations of a batch | peak | beyond model and activations |",
        "|---|---:|---:|---:|---:|",
    ]
    for path in sorted((ROOT / "results/speed").glob("*.json")):
        found = json.loads(path.read_text())
        if (memory := found["memory"]) and found["parameters"] > LARGE:
            sizes = " | ".join(f"{memory[name] / 2**20:,.0f} MiB" for name in ("weights", "activations", "peak"))
            over = memory["over model and activations, in weights"]
            lines.append(f"| {path.stem} | {sizes} | {over:.2f} x the weights |")
    return "\n".join(lines) + "\n"


def spread(rows: list[dict[str, Any]], key: str) -> str:
    values = [row[key] for row in rows]
    return f"{fmean(values):.1f} ({min(values):.1f})"


if __name__ == "__main__":
    tables = {"speed": speeds(), "shares": shares(), "precision": precisions(), "memory": memories()}
    put("speed_docs.py", {"docs/speed.md": tables})
