"""Write the tables of docs/antidote.md from the result files; with --check only say whether they are up to date.

python scripts/antidote_docs.py [--check]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from antidote_results import SUITES, TRIGGERS, cells, mean, mean_and_worst, place, records
from between_markers import ROOT, put

from potion.evidence import APART, TOGETHER
from potion.trigger import STRONG


def campaign() -> str:
    """Every cell: mean and worst of its seeds."""
    lines = []
    for suite, placed in SUITES.items():
        found = records(suite, "antidote")
        if not found:
            continue
        seeds = sorted({record["scenario"]["seed"] for record in found})
        lines += [
            f"Trigger {placed}; seeds {', '.join(map(str, seeds))}. *Obeys*: attack success before, after. Mean (worst).",
            "",
            "| trigger | poisoned | known | obeys | healed, % | damage | discovered: precision, recall |",
            "|---|---:|---:|---|---:|---:|---|",
        ]
        for cell, rows in cells(found):
            before, after = (
                fmean(row["victim"]["attack_success_rate"] for row in rows),
                mean(rows, "attack_success_rate"),
            )
            lines.append(
                f"| {TRIGGERS[cell[0]]} | {cell[1]} | {cell[2]} | {before:.1f}, {after:.1f} "
                f"| {mean_and_worst(rows, 'healed')}{unhealed(rows)} | {mean_and_worst(rows, 'damage', 2)} "
                f"| {discovery(rows)} |"
            )
        lines += ["", totals(found), ""]
    return "\n".join(lines)


def totals(found: list[dict[str, Any]]) -> str:
    """What all cells say together, seed by seed."""
    groups = {
        "all": found,
        "one known": [record for record in found if record["known"] == 1],
        "moving patch, one known": [
            record for record in found if record["known"] == 1 and record["scenario"]["attack"] == "moving"
        ],
    }
    lines = [
        "| | seed | runs | healed, % | counted as 100 at most | damage | not found |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, some in groups.items():
        seeds = sorted({record["scenario"]["seed"] for record in some})
        for seed in seeds:
            lines.append(told(name, str(seed), [record for record in some if record["scenario"]["seed"] == seed]))
        if len(seeds) > 1:
            lines.append(told(name, "all", some))
    worst = min(found, key=lambda record: record["healed"])
    where = worst["scenario"]
    lines += [
        "",
        f"The worst is {TRIGGERS[where['attack']]}, {where['poisoned']} poisoned, {worst['known']} known, seed "
        f"{where['seed']}: {worst['healed']:.1f} % healed.",
    ]
    return "\n".join(lines)


def told(name: str, seed: str, found: list[dict[str, Any]]) -> str:
    capped = fmean(min(100, record["healed"]) for record in found)
    missed = sum(record["status"] == "not_found" for record in found)
    return (
        f"| {name} | {seed} | {len(found)} | {mean(found, 'healed'):.1f} | {capped:.1f} | {mean(found, 'damage'):+.2f} "
        f"| {missed} |"
    )


def unhealed(rows: list[dict[str, Any]]) -> str:
    """How many runs ended otherwise, and how."""
    ends = sorted(row["status"].replace("_", " ") for row in rows if row["status"] != "healed")
    return "".join(f" *{ends.count(end)} {end}*" for end in dict.fromkeys(ends))


def discovery(rows: list[dict[str, Any]]) -> str:
    found = [row["discovery"] for row in rows if row.get("discovery") and row["discovery"]["precision"] is not None]
    if not found:
        return "-"
    if found[0]["recall"] is None:
        return f"none left, {fmean(each['named'] for each in found):.0f} named"
    return f"{fmean(each['precision'] for each in found):.2f}, {fmean(each['recall'] for each in found):.2f}"


def unseen() -> str:
    """The attack that nothing was tuned on."""
    return beside_xlf(["unseen-cifar10"])


def transformer() -> str:
    """DeiT-tiny on Imagenette."""
    return beside_xlf([f"vit-imagenette-{attack}" for attack in ("badnet", "moving", "sine")])


def beside_xlf(suites: list[str]) -> str:
    """The antidote's cells of some suites, each with XLF + PTN beside it."""
    ours, theirs = ([record for suite in suites for record in records(suite, each)] for each in ("antidote", "xlf"))
    lines = [
        "| trigger | poisoned | known | runs | obeys | antidote: healed, % | damage | discovered: precision, recall "
        "| XLF + PTN: healed, % | damage |",
        "|---|---:|---:|---:|---|---:|---:|---|---:|---:|",
    ]
    beside = dict(cells(theirs))
    for cell, rows in cells(ours):
        before = fmean(row["victim"]["attack_success_rate"] for row in rows)
        lines.append(
            f"| {TRIGGERS[cell[0]]} | {cell[1]} | {cell[2]} | {len(rows)} "
            f"| {before:.1f}, {mean(rows, 'attack_success_rate'):.1f} "
            f"| {mean_and_worst(rows, 'healed')}{unhealed(rows)} | {mean_and_worst(rows, 'damage', 2)} | {discovery(rows)} "
            f"| {mean_and_worst(beside[cell], 'healed')} | {mean_and_worst(beside[cell], 'damage', 2)} |"
        )
    return "\n".join(lines) + "\n" if ours else ""


def guards() -> str:
    """XLF + PTN with and without a look at trusted samples, over the runs that exist of every form."""
    forms = {"xlf": "the paper's rule", "xlf_guarded": "`guard=2`", "xlf_trusted": '`stop="trusted"`'}
    found = {form: {place(record): record for record in records("guard-cifar10", form)} for form in forms}
    common = sorted(set.intersection(*(set(each) for each in found.values())))
    seeds = sorted({seed for *_, seed in common})
    lines = [
        f"Seeds that have all three so far: {', '.join(map(str, seeds))}.",
        "",
        "| XLF + PTN | known | runs | healed, % | damage | lost more than 2 points |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for form, title in forms.items():
        for shown, wanted in {"one": True, "10 % and 50 %": False}.items():
            rows = [found[form][each] for each in common if (each[2] == 1) is wanted]
            lost = sum(row["damage"] < -2 for row in rows)
            lines.append(
                f"| {title} | {shown} | {len(rows)} | {mean_and_worst(rows, 'healed')} "
                f"| {mean_and_worst(rows, 'damage', 2)} | {lost} |"
            )
    return "\n".join(lines) + "\n" if common else ""


def alarms() -> str:
    """How often a list of names convinces, and how often it would if others that fall were enough."""
    path = ROOT / "results/false-alarms/fashion-mnist.json"
    if not path.exists():
        return ""
    rows = json.loads(path.read_text())["rows"]
    lines = [
        "| network | accuracy on trusted samples | lists | convincing | by strength | others fell together with the known | "
        "the known set apart | others fell, with or without them |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for iterations, poisoned in dict.fromkeys((row["iterations"], row["poisoned"]) for row in rows):
        some = [row for row in rows if (row["iterations"], row["poisoned"]) == (iterations, poisoned)]
        fell = [row for row in some if row["company"] >= row["enough"]]
        counts = (
            len(some), sum(row["convincing"] for row in some), sum(row["strength"] >= STRONG for row in some),
            sum(row["together"] >= TOGETHER for row in fell), sum(row["apart"] >= APART for row in some), len(fell),
        )  # fmt: skip
        name = f"{poisoned} poisoned" if poisoned else "clean"
        lines.append(
            f"| {name}, {iterations} iterations | {fmean(row['trusted'] for row in some):.2f} | "
            + " | ".join(map(str, counts))
            + " |"
        )
    return "\n".join(lines) + "\n"


def missed() -> str:
    """What part of the hidden poison was named, by how well its trigger works."""
    found = [
        {**row, "placed": placed}
        for suite, placed in SUITES.items()
        for path in [ROOT / f"results/missed-poison/{suite}.json"]
        if path.exists()
        for row in json.loads(path.read_text())
    ]
    lines = [
        "| works in | trigger | poisoned | | runs | named, of all | of the wrongly labelled | missed | rightly labelled |",
        "|---:|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(found, key=lambda row: row["attack_success_rate"], reverse=True):
        wrong, unseen = row["hidden"] - row["right"], row["missed"] - row["missed_right"]
        lines.append(
            f"| {row['attack_success_rate']:.0f} % | {TRIGGERS[row['attack']]} | {row['poisoned']} | {row['placed']} "
            f"| {row['runs']} | {1 - row['missed'] / row['hidden']:.2f} | {1 - unseen / wrong:.2f} "
            f"| {row['missed']} | {row['missed_right']} |"
        )
    return "\n".join(lines) + "\n" if found else ""


def ablation() -> str:
    found = [json.loads(path.read_text()) for path in sorted((ROOT / "results/antidote-ablation").glob("*.json"))]
    if not found:
        return ""
    found.sort(key=lambda each: list(TRIGGERS).index(each["attack"]))
    lines = ["| % healed, damage | " + " | ".join(TRIGGERS[each["attack"]] for each in found) + " |"]
    lines.append("|---|" + "---:|" * len(found))
    for name in found[0]["found"]:
        rows = [each["found"][name] for each in found]
        shown = [f"{row['healed']:.1f}, {row['damage']:+.2f}" + stopped(row) for row in rows]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def stopped(row: dict[str, Any]) -> str:
    if row["status"] == "healed":
        return "" if row["method"] == "antidote" else f" (by {row['method'].upper()} in its place)"
    return f" ({row['status'].replace('_', ' ')})"


def robustness() -> str:
    found = [json.loads(path.read_text()) for path in sorted((ROOT / "results/antidote-robustness").glob("*.json"))]
    if not found:
        return ""
    found.sort(key=lambda each: list(TRIGGERS).index(each["attack"]))
    lines = ["| | " + " | ".join(TRIGGERS[each["attack"]] for each in found) + " |", "|---|" + "---:|" * len(found)]
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("healed, damage", lambda each: graded(each["found"]["as it should be"])),
        ("10 % of the names wrong", lambda each: graded(each["found"]["10% of the names wrong"])),
        ("clean model, one name", lambda each: left_alone(each["found"]["clean model"], 0)),
        ("clean model, 50 names", lambda each: left_alone(each["found"]["clean model"], 1)),
        ("recall of the attacker's class: poisoned, healed, retrained", recalls),
        ("triggered images in the wrong class most often given: healed, retrained", astray),
        ("attack success after 1 and 5 more epochs: healed", lambda each: returning(each, "healed")),
        ("attack success after 1 and 5 more epochs: retrained", lambda each: returning(each, "reference")),
        *relapses(),
    ]
    for title, value in rows:
        lines.append(f"| {title} | " + " | ".join(value(each) for each in found) + " |")
    return "\n".join(lines) + "\n"


def relapses() -> Iterator[tuple[str, Callable[[dict[str, Any]], str]]]:
    """The same epochs on what is left of the data once the known and the discovered poison is out of them."""
    folder = ROOT / "results/antidote-relapse"
    if not folder.is_dir():
        return

    def found(each: dict[str, Any]) -> dict[str, Any]:
        return json.loads((folder / f"{each['attack']}.json").read_text())  # type: ignore[no-any-return]

    def left(each: dict[str, Any]) -> str:
        taken = found(each)["found"]["taken out"]
        return f"{each['poisoned'] - taken['poison']}, {taken['clean']}"

    yield "poison left in the data, clean samples lost, without what `discover` named", left
    yield "attack success after 1 and 5 more epochs without it: healed", lambda each: returning(found(each), "rest")


def graded(row: dict[str, Any]) -> str:
    return f"{row['healed']:.1f}, {row['damage']:+.2f}{stopped(row)}"


def left_alone(rows: dict[str, Any], place: int) -> str:
    row = list(rows.values())[place]
    return str(row["status"]).replace("_", " ") + ("" if not row["weights_changed"] else f", {row['damage']:+.2f}")


def recalls(each: dict[str, Any]) -> str:
    return ", ".join(f"{each['found']['classes'][who]['recall']:.1f}" for who in ("victim", "healed", "reference"))


def astray(each: dict[str, Any]) -> str:
    """The largest share of all triggered images that one wrong class draws."""
    shares = []
    for who in ("healed", "reference"):
        matrix = each["found"]["classes"][who]["triggered"]
        wrong = [sum(row[k] for j, row in enumerate(matrix) if j != k) for k in range(len(matrix))]
        shares.append(f"{100 * max(wrong) / sum(map(sum, matrix)):.1f} %")
    return ", ".join(shares)


def returning(each: dict[str, Any], who: str) -> str:
    epochs = each["found"]["further training"][who]
    return f"{epochs[0]['attack_success_rate']:.1f}, {epochs[-1]['attack_success_rate']:.1f}"


if __name__ == "__main__":
    put(
        "docs/antidote.md",
        "antidote_docs.py",
        {
            "campaign": campaign(),
            "unseen": unseen(),
            "transformer": transformer(),
            "guards": guards(),
            "alarms": alarms(),
            "missed": missed(),
            "ablation": ablation(),
            "robustness": robustness(),
        },
    )
