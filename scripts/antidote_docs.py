"""Write the tables of docs/antidote.md and docs/antidote_results.md from the result files.

With --check only say whether they are up to date.

python scripts/antidote_docs.py [--check]
"""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

from antidote_check_tables import ablation, robustness
from antidote_part_tables import alarms, carriers, kin, like_the_known, missed, shown
from antidote_results import FORMS, SUITES, TRIGGERS, cells, form, forms, mean, mean_and_worst, place, records
from between_markers import ROOT, put

from potion.antidote.treatment import SLACK

WRONG = 10
"""Percent of triggered images that obey, above which it was wrong to call a model healed."""


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
        lines += ["", totals(found), "", forms(found), ""]
    return "\n".join(lines)


def five_forms() -> str:
    """What the method has been, how many runs there are of each form, and whether *healed* was true."""
    found = [json.loads(path.read_text()) for path in sorted((ROOT / "results").glob("*/*/antidote-s*.json"))]
    numbers = [form(record) for record in found]
    lines = ["| form | since | runs | new |", "|---:|---|---:|---|"]
    for number, (since, what) in FORMS.items():
        lines.append(f"| {number} | {since[:10]} | {numbers.count(number)} | {what} |")
    healed = [record for record in found if record["status"] == "healed"]
    wrong = [record for record in healed if record["attack_success_rate"] > WRONG]
    obeying = [record for record in healed if record["notes"]["known"][1] > 0.2 * record["notes"]["known"][0] + SLACK]
    named = "; ".join(
        f"{TRIGGERS[attack]}, {poisoned} poisoned, {known} known, seed {seed} of `{record['suite']}`: "
        f"{record['attack_success_rate']:.0f} %"
        for record in wrong
        for attack, poisoned, known, seed in [place(record)]
    )
    lines += [
        "",
        f"Of the {len(healed)} runs that are called healed {len(wrong) or 'none'} left a trigger that works in more than "
        f"{WRONG} % of cases" + (f" ({named})." if wrong else "."),
        f"In {len(obeying)} more than a fifth of the known samples that obeyed still do, as a note tells now; among the "
        f"{len(wrong)} it is {sum(record in obeying for record in wrong)}.",
    ]
    return "\n".join(lines) + "\n"


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
        f"| {name} | {seed} | {len(found)} | {mean(found, 'healed'):.1f} | {capped:.1f} | {mean(found, 'damage'):+z.2f} "
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
    """The attacks that nothing was tuned on."""
    return beside_xlf(["unseen-cifar10", "unseen-posterise"])


def transformer() -> str:
    """DeiT-tiny on Imagenette."""
    suites = [f"vit-imagenette-{attack}" for attack in ("badnet", "moving", "sine")]
    ours = [record for suite in suites for record in records(suite, "antidote")]
    beside = {place(record): record for suite in suites for record in records(suite, "xlf")}
    costlier = sum(record["damage"] < beside[place(record)]["damage"] for record in ours)
    damages, healed = ([record[key] for record in ours] for key in ("damage", "healed"))
    obeyed = max(record["attack_success_rate"] for record in ours)
    seen = [trusted_change(record) for record in ours]
    return beside_xlf(suites) + (
        f"\n{len(ours)} runs: healed {min(healed):.1f} to {max(healed):.1f} %, damage {max(damages):+.2f} to "
        f"{min(damages):+.2f}, more than XLF + PTN's in {costlier}; the trigger still works in {obeyed:.2f} % of the cases "
        f"at most; accuracy on the held-out trusted samples changed by {min(seen):+.2f} to {max(seen):+.2f} points.\n"
    )


def half() -> str:
    """DeiT-tiny at half the size, and one of its runs with the first limit for carriers alone."""
    former = json.loads((ROOT / "results/clean-carriers/half-moving-m500-first-limit.json").read_text())
    named = former["discovery"]
    return beside_xlf(["vit-imagenette-half"]) + (
        "\nWith the [first limit](antidote.md#carriers) for carriers alone the moving patch in 500 came to "
        f"{former['healed']:.1f} % at "
        f"{former['damage']:+.2f}, discovered: {named['precision']:.2f}, {named['recall']:.2f}.\n"
    )


def timing() -> str:
    """What an antidote costs with the machine to itself."""
    lines = [
        "| known | on | seconds | localising | quarantine | immunising | the rest |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for record in sorted(records("timing", "antidote"), key=lambda record: record["known"]):
        main = [record["timings"][phase] for phase in ("localising", "quarantine", "immunising")]
        shown = " | ".join(f"{each:.1f}" for each in (record["seconds"], *main, record["seconds"] - sum(main)))
        lines.append(f"| {record['known']} | {record['provenance']['device']} | {shown} |")
    return "\n".join(lines) + "\n"


def trusted_change(record: dict[str, Any]) -> float:
    before, after = record["notes"]["trusted"]
    return 100 * float(after - before)


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
        other = beside.get(cell)
        dampened = f"{mean_and_worst(other, 'healed')} | {mean_and_worst(other, 'damage', 2)}" if other else "- | -"
        lines.append(
            f"| {TRIGGERS[cell[0]]} | {cell[1]} | {cell[2]} | {len(rows)} "
            f"| {before:.1f}, {mean(rows, 'attack_success_rate'):.1f} "
            f"| {mean_and_worst(rows, 'healed')}{unhealed(rows)} | {mean_and_worst(rows, 'damage', 2)} | {discovery(rows)} "
            f"| {dampened} |"
        )
    lines += ["", forms(ours)]
    return "\n".join(lines) + "\n" if ours else ""


def guards() -> str:
    """XLF + PTN with and without a look at trusted samples, over the runs that exist of all three."""
    rules = {"xlf": "the paper's rule", "xlf_guarded": "`guard=2`", "xlf_trusted": '`stop="trusted"`'}
    found = {rule: {place(record): record for record in records("guard-cifar10", rule)} for rule in rules}
    common = sorted(set.intersection(*(set(each) for each in found.values())))
    seeds = sorted({seed for *_, seed in common})
    lines = [
        f"Over the runs that exist of all three, of seed {', '.join(map(str, seeds))}.",
        "",
        "| XLF + PTN | known | runs | healed, % | damage | lost more than 2 points |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for rule, title in rules.items():
        for share, wanted in {"one": True, "10 % and 50 %": False}.items():
            rows = [found[rule][each] for each in common if (each[2] == 1) is wanted]
            lost = sum(row["damage"] < -2 for row in rows)
            lines.append(
                f"| {title} | {share} | {len(rows)} | {mean_and_worst(rows, 'healed')} "
                f"| {mean_and_worst(rows, 'damage', 2)} | {lost} |"
            )
    return "\n".join(lines) + "\n" if common else ""


if __name__ == "__main__":
    method = {
        "carriers": carriers(),
        "shown": shown(),
        "like the known": like_the_known(),
        "guards": guards(),
        "ablation": ablation(),
        "ablation-embedded": ablation("-embedded"),
    }
    results = {
        "forms": five_forms(),
        "campaign": campaign(),
        "small": beside_xlf(["antidote-small"]),
        "majority": beside_xlf(["antidote-majority"]),
        "unseen": unseen(),
        "transformer": transformer(),
        "half": half(),
        "wide": beside_xlf(["goel-cifar100"]),
        "timing": timing(),
        "alarms": alarms(),
        "kin": kin(),
        "missed": missed(),
        "robustness": robustness(),
        "robustness-embedded": robustness("-embedded"),
    }
    put("antidote_docs.py", {"docs/antidote.md": method, "docs/antidote_results.md": results})
