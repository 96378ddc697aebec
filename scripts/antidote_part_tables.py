"""What single parts of the antidote see: false alarms, kin, carriers, what is surely clean, what is missed; as tables."""

from __future__ import annotations

import json
from statistics import fmean

from antidote_results import SUITES, TRIGGERS
from between_markers import ROOT

from potion.antidote.evidence import APART, TOGETHER
from potion.antidote.trigger import STRONG


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


def kin() -> str:
    """How often the second look convinces, and who joins the known samples then."""
    path = ROOT / "results/false-alarms/kin.json"
    if not path.exists():
        return ""
    rows = json.loads(path.read_text())["rows"]
    lines = ["| network | known | lists | convincing | new, where it does | poison |", "|---|---:|---:|---:|---:|---:|"]
    keys = ("iterations", "attack", "poisoned", "known")
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in rows):
        some = [row for row in rows if tuple(row[name] for name in keys) == key]
        believed = [row for row in some if row["convincing"]]
        iterations, attack, poisoned, known = key
        network = f"{TRIGGERS[attack]}, {poisoned} poisoned" if attack else "clean"
        new = [f"{fmean(row[name] for row in believed):.0f}" for name in ("new", "new_poison") if believed]
        counts = [str(known), str(len(some)), str(len(believed)), *(new or "--")]
        lines.append(f"| {network}, {iterations} iterations | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def carriers() -> str:
    """Who is taken for a carrier by either limit."""
    names = {
        "embedded": "ResNet-9, Fashion-MNIST, BadNet",
        "half-badnet-m500": "DeiT-tiny, Imagenette at 112 pixels, BadNet",
        "half-moving-m500": "the same, moving patch",
    }
    lines = [
        "| network, trigger | poisoned, clean samples of the label | carriers by the first limit: poisoned, clean "
        "| by both: poisoned, clean |",
        "|---|---:|---:|---:|",
    ]
    for victim, title in names.items():
        path = ROOT / f"results/clean-carriers/{victim}.json"
        if path.exists():
            found = json.loads(path.read_text())
            pairs = [found, found["carriers"]["alike"], found["carriers"]["beside trusted"]]
            lines.append(f"| {title} | " + " | ".join(f"{each['poison']}, {each['clean']}" for each in pairs) + " |")
    return "\n".join(lines) + "\n"


def shown() -> str:
    """How much poison is in what is taken for surely clean."""
    suites = {"antidote-small": "ResNet-9", "antidote-majority": "ResNet-9", "vit-imagenette-half": "DeiT-tiny"}
    lines = [
        "| network, trigger | poisoned, clean samples of the label | known | shown | of these poisoned: mean (most) "
        "| at first: shown | poisoned |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for suite, network in suites.items():
        for row in json.loads((ROOT / f"results/surely-clean/{suite}.json").read_text())["victims"]:
            for known in dict.fromkeys(draw["known"] for draw in row["draws"]):
                cells = [
                    f"{draw['shown']} | {fmean(draw['poison']):.1f} ({max(draw['poison'])})"
                    for rule in ("now", "at first")
                    for draw in row["draws"]
                    if (draw["known"], draw["rule"]) == (known, rule)
                ]
                counts = f"{row['poison']}, {row['clean']} | {known}"
                lines.append(f"| {network}, {TRIGGERS[row['attack']]} | {counts} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def like_the_known() -> str:
    """Who may be poison where many are known."""
    networks = {
        "antidote-small": "ResNet-9, Fashion-MNIST",
        "vit-imagenette-half": "DeiT-tiny, Imagenette at 112 pixels",
    }
    lines = [
        "| network, trigger | poisoned | known | tells, of ten draws | hidden poison that may be poison | clean samples |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for suite, network in networks.items():
        path = ROOT / f"results/like-the-known/{suite}.json"
        for row in json.loads(path.read_text())["victims"] if path.exists() else []:
            for known in dict.fromkeys(draw["known"] for draw in row["draws"]):
                mine = [draw for draw in row["draws"] if draw["known"] == known]
                shares = [f"{100 * fmean(draw[key] for draw in mine):.1f} %" for key in ("hidden", "clean")]
                lines.append(
                    f"| {network}, {TRIGGERS[row['attack']]} | {row['poisoned']} | {known} "
                    f"| {sum(draw['tells'] for draw in mine)} | {' | '.join(shares)} |"
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
