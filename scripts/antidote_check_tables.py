"""What removing parts of the antidote does, and how it stands up where things are not as they should be, as tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from antidote_results import TRIGGERS, forms
from between_markers import ROOT


def checked(what: str) -> list[dict[str, Any]]:
    """The records of a check, in the order of the triggers."""
    found = [json.loads(path.read_text()) for path in (ROOT / f"results/antidote-{what}").glob("*.json")]
    return sorted(found, key=lambda each: list(TRIGGERS).index(each["attack"]))


def ablation(*where: str) -> str:
    found = [each for place in where or [""] for each in checked(f"ablation{place}")]
    if not found:
        return ""
    lines = ["| % healed, damage | " + " | ".join(TRIGGERS[each["attack"]] for each in found) + " |"]
    lines.append("|---|" + "---:|" * len(found))
    for name in dict.fromkeys(name for each in found for name in each["found"]):
        lines.append(f"| {name} | " + " | ".join(graded(each["found"].get(name)) for each in found) + " |")
    return "\n".join([*lines, "", forms(found)]) + "\n"


def stopped(row: dict[str, Any]) -> str:
    if row["status"] == "healed":
        return "" if row["method"] == "antidote" else f" (by {row['method'].upper()} in its place)"
    return f" ({row['status'].replace('_', ' ')})"


def robustness(where: str = "") -> str:
    found = checked(f"robustness{where}")
    if not found:
        return ""
    many = list(found[0]["found"]["clean model"])[1]
    lines = ["| | " + " | ".join(TRIGGERS[each["attack"]] for each in found) + " |", "|---|" + "---:|" * len(found)]
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("healed, damage", lambda each: graded(each["found"]["as it should be"])),
        ("10 % of the names wrong", lambda each: graded(each["found"]["10% of the names wrong"])),
        ("10 % wrong, all of the attacker's class", lambda each: graded(each["found"].get("10% wrong, of its class"))),
        ("clean model, one name", lambda each: left_alone(each["found"]["clean model"], 0)),
        (f"clean model, {many} names", lambda each: left_alone(each["found"]["clean model"], 1)),
        ("recall of the attacker's class: poisoned, healed, retrained", recalls),
        ("triggered images in the wrong class most often given: healed, retrained", astray),
        ("attack success after 1 and 5 more epochs: healed", lambda each: returning(each, "healed")),
        ("attack success after 1 and 5 more epochs: retrained", lambda each: returning(each, "reference")),
        *relapses(where),
    ]
    for title, value in rows:
        lines.append(f"| {title} | " + " | ".join(value(each) for each in found) + " |")
    return "\n".join([*lines, "", forms(found)]) + "\n"


def relapses(where: str) -> Iterator[tuple[str, Callable[[dict[str, Any]], str]]]:
    """The same epochs on what is left of the data once the known and the discovered poison is out of them."""
    by_attack = {each["attack"]: each for each in checked(f"relapse{where}")}
    if not by_attack:
        return

    def found(each: dict[str, Any]) -> dict[str, Any]:
        return by_attack[each["attack"]]

    def left(each: dict[str, Any]) -> str:
        taken = found(each)["found"]["taken out"]
        return f"{each['poisoned'] - taken['poison']}, {taken['clean']}"

    yield "poison left in the data, clean samples lost, without what `discover` named", left
    yield "attack success after 1 and 5 more epochs without it: healed", lambda each: returning(found(each), "rest")


def graded(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not run yet"
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
