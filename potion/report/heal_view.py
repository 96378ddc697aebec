"""What the page of a heal shows: all that a result file has, and nothing that it has not."""

from __future__ import annotations

from typing import Any, Final

from potion.report.again import again
from potion.report.checks import ReportError, listed, number, rows, table
from potion.report.facts import duration, facts
from potion.report.outcome import outcome
from potion.report.page import render
from potion.report.pictures import pictures
from potion.report.scores import scores

__all__ = ["heal_page", "is_heal"]

NEEDED: Final = ("method", "known", "status", "known_accuracy", "search", "chosen", "trace", "weights_changed")
RUN: Final = ("known", "clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage")
ROWS: Final = 300
"""How many suspects and known files a page lists; the rest are in the result."""


def is_heal(data: Any) -> bool:
    """Whether this is what ``HealResult.to_dict`` makes, with or without more."""
    return isinstance(data, dict) and all(key in data for key in NEEDED)


def heal_page(data: dict[str, Any], folder: str | None = None) -> str:
    """The page of one result; ``folder`` is where its files lie, for the command that repeats it with another rho."""
    _check(data)
    shown, left_out = pictures(data)
    corrected = _corrected(data)
    known, suspects = _known(data), rows(data, "suspects", numbers=("index", "score"))
    view = {
        "title": f"{data['method'].upper()}, {data['known']:,} known",
        "outcome": outcome(data),
        "warnings": [str(each) for key in ("warnings", "notes") for each in listed(data, key)],
        "scores": scores(data),
        "runs": rows(data, "runs", numbers=RUN, texts=("method",)),
        "search": data["search"],
        "searched": bool(data["trace"]),
        "treated": bool(table(data, "treatment")),
        "corrected": corrected[:ROWS],
        "corrected_left_out": len(corrected[ROWS:]),
        "pictures": shown,
        "pictures_left_out": left_out,
        "layers": _layers(data),
        "suspects": suspects[:ROWS],
        "suspects_left_out": len(suspects[ROWS:]),
        "known": known[:ROWS],
        "known_left_out": len(known[ROWS:]),
        "classes": [str(each) for each in listed(data, "classes")],
        "inputs": facts(table(data, "inputs")),
        "again": again(table(data, "inputs")),
        "provenance": facts(table(data, "provenance")),
        "settings": facts(
            {
                "method": data["method"],
                "known samples": data["known"],
                "training samples": data.get("samples"),
                "weights": data.get("weights"),
                **_search(data),
            }
        ),
        "timings": [(name, duration(seconds)) for name, seconds in _timings(data).items()],
        "total": duration(sum(_timings(data).values())),
    }
    return render("heal.html", view, _tradeoff(data, folder), ["tradeoff.js"])


def _check(data: dict[str, Any]) -> None:
    if not isinstance(data["method"], str):
        raise ReportError(f"method must be a text, got {data['method']!r}")
    treated = bool(table(data, "treatment"))  # the antidote teaches instead of searching
    if data["status"] == "healed" and not table(data, "chosen") and not treated:
        raise ReportError("chosen is missing: a healed result names the step that it took")
    if data["status"] == "healed" and treated:
        for key in ("power", "trusted"):
            pair = listed(table(data, "treatment"), key)
            if len(pair) != 2 or not all(isinstance(each, int | float) for each in pair):
                raise ReportError(f"treatment.{key} must be two numbers, before and after")
        if not isinstance(table(data, "treatment").get("judged_by"), str):
            raise ReportError("treatment.judged_by is missing")
    for where, keys in (
        (data, ("known", "known_accuracy", "weights_changed")),
        (table(data, "search"), ("rho",)),
        *([(table(data, "chosen"), ("s", "known_accuracy"))] if data["chosen"] else []),
    ):
        for key in keys:
            if number(where, key) is None:
                raise ReportError(f"{key} is missing")
    steps = rows(data, "trace", numbers=("s", "selected", "known_accuracy"))
    if any(point["s"] <= 0 for point in (*steps, *rows(data, "curve", numbers=("s",)))):
        raise ReportError("s must be above 0 in trace and curve")
    if not steps and data["status"] in ("healed", "saturated", "exhausted") and not treated:
        raise ReportError(f"trace is empty, but the status is {data['status']}")


def _tradeoff(data: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """The points of the search, and of a measured curve where there is one; accuracies in percent."""
    curve = rows(data, "curve", numbers=("s",))
    return {
        "trace": [[step["s"], step["selected"], 100 * step["known_accuracy"]] for step in data["trace"]],
        "curve": [[point["s"], number(point, "known"), number(point, "clean")] for point in curve],
        "known_accuracy": data["known_accuracy"],
        "rho": data["search"]["rho"],
        "ended": data["status"] != "healed",
        "folder": folder,
    }


def _search(data: dict[str, Any]) -> dict[str, Any]:
    """The settings that had a part in it: an antidote does not search."""
    used = ("rho", "guard") if table(data, "treatment") else data["search"].keys()
    return {key: value for key, value in data["search"].items() if key in used}


def _layers(data: dict[str, Any]) -> dict[str, Any]:
    """The layers that changed, in the model's order, with bars: the share of each, or of all changes."""
    layers = rows(data, "layers", numbers=("changed",), texts=("name",))
    most = sum(layer["changed"] for layer in layers)
    touched = []
    for layer in layers:
        total = number(layer, "total") or number(layer, "weights")
        touched.append({
            "name": layer["name"],
            "changed": layer["changed"],
            "total": total,
            "factor": number(layer, "mean_factor"),
            "width": 100 * min(1.0, layer["changed"] / (total or most or 1)),
        })  # fmt: skip
    touched = [layer for layer in touched if layer["changed"] > 0]
    return {"all": len(layers), "touched": touched, "untouched": len(layers) - len(touched)}


def _known(data: dict[str, Any]) -> list[str]:
    """The known poison by file name, or by index where there are no names; with its class where that is said."""
    samples = rows(data, "known_samples", numbers=("index",))
    named = [
        f"{sample.get('name') or sample['index']}{': ' + str(sample['class']) if sample.get('class') else ''}"
        for sample in samples
    ]
    return named or [str(each) for each in listed(data, "known_files")]


def _corrected(data: dict[str, Any]) -> list[str]:
    """The poison that a treatment found beside the known, with the class that each belongs to."""
    classes = listed(data, "classes")
    return [
        f"{index}: {classes[label] if isinstance(label, int) and 0 <= label < len(classes) else label}"
        for index, label in table(table(data, "treatment"), "corrected").items()
    ]


def _timings(data: dict[str, Any]) -> dict[str, float]:
    timings = table(data, "timings")
    return {str(name): number(timings, name) or 0.0 for name in timings}
