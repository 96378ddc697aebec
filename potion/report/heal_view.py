"""What the page of a heal shows: all that a result file has, and nothing that it has not."""

from __future__ import annotations

import base64
from typing import Any, Final

from potion.metrics import wilson
from potion.report.checks import ReportError, listed, number, rows, table
from potion.report.facts import duration, facts
from potion.report.outcome import outcome
from potion.report.page import render

__all__ = ["heal_page", "is_heal"]

NEEDED: Final = ("method", "known", "status", "known_accuracy", "search", "chosen", "trace", "weights_changed")
SCORES: Final = (
    ("clean_accuracy", "Clean images, classified rightly", "n_clean", "up"),
    ("clean_label_accuracy", "Images with the trigger, classified rightly", "n_triggered", "up"),
    ("attack_success_rate", "Images with the trigger, obeying the attacker", "n_triggered", "down"),
)
RUN: Final = ("known", "clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage")
ROWS: Final = 300
"""How many suspects and known files a page lists; the rest are in the result."""
PICTURE_BYTES: Final = 4_000_000
"""How much of the page may be pictures, so that it stays below 5 MB."""


def is_heal(data: Any) -> bool:
    """Whether this is what ``HealResult.to_dict`` makes, with or without more."""
    return isinstance(data, dict) and all(key in data for key in NEEDED)


def heal_page(data: dict[str, Any], folder: str | None = None) -> str:
    """The page of one result; ``folder`` is where its files lie, for the command that repeats it with another rho."""
    _check(data)
    pictures, left_out = _pictures(data)
    known_files, suspects = listed(data, "known_files"), rows(data, "suspects", numbers=("index", "score"))
    view = {
        "title": f"{data['method'].upper()}, {data['known']:,} known",
        "outcome": outcome(data),
        "warnings": [str(each) for each in listed(data, "warnings")],
        "scores": _scores(data),
        "runs": rows(data, "runs", numbers=RUN, texts=("method",)),
        "search": data["search"],
        "searched": bool(data["trace"]),
        "pictures": pictures,
        "pictures_left_out": left_out,
        "layers": _layers(data),
        "suspects": suspects[:ROWS],
        "suspects_left_out": len(suspects[ROWS:]),
        "known_files": [str(each) for each in known_files[:ROWS]],
        "known_left_out": len(known_files[ROWS:]),
        "classes": [str(each) for each in listed(data, "classes")],
        "inputs": facts(table(data, "inputs")),
        "provenance": facts(table(data, "provenance")),
        "settings": facts({"method": data["method"], "known samples": data["known"], **data["search"]}),
        "timings": [(name, duration(seconds)) for name, seconds in _timings(data).items()],
        "total": duration(sum(_timings(data).values())),
    }
    return render("heal.html", view, _tradeoff(data, folder), ["tradeoff.js"])


def _check(data: dict[str, Any]) -> None:
    if not isinstance(data["method"], str):
        raise ReportError(f"method must be a text, got {data['method']!r}")
    if data["status"] == "healed" and not table(data, "chosen"):
        raise ReportError("chosen is missing: a healed result names the step that it took")
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
    if not steps and data["status"] != "not_learned":
        raise ReportError(f"trace is empty, but the status is {data['status']}")


def _tradeoff(data: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """The points of the search, and of a measured curve where there is one; accuracies in percent."""
    curve = rows(data, "curve", numbers=("s",))
    return {
        "trace": [[step["s"], step["selected"], 100 * step["known_accuracy"]] for step in data["trace"]],
        "curve": [[point["s"], number(point, "known"), number(point, "clean")] for point in curve],
        "known_accuracy": data["known_accuracy"],
        "rho": data["search"]["rho"],
        "sequential": data["search"].get("strategy") != "bisect",
        "ended": data["status"] != "healed",
        "folder": folder,
    }


def _scores(data: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each score that was taken: before and after with their intervals, and what changed."""
    given = table(data, "scores")
    before, after = table(given, "before"), table(given, "after")
    found = []
    for key, label, counted, good in SCORES:
        sides = [
            _scored(
                number(side, key), next((int(n) for n in (number(t, counted) for t in (side, given, data)) if n), 0)
            )
            for side in (before, after)
        ]
        if not any(sides):
            continue
        change = sides[1]["value"] - sides[0]["value"] if sides[0] and sides[1] else None
        verdict = "" if not change else "better" if (change > 0) == (good == "up") else "worse"
        found.append({"label": label, "before": sides[0], "after": sides[1], "change": change, "verdict": verdict})
    return found


def _scored(value: float | None, count: int) -> dict[str, Any] | None:
    if value is None:
        return None
    if not 0 <= value <= 100:
        raise ReportError(f"scores are percentages from 0 to 100, got {value:g}")
    low, high = wilson(value, count) if count > 0 else (None, None)
    return {"value": value, "low": low, "high": high, "count": count}


def _layers(data: dict[str, Any]) -> dict[str, Any]:
    """The layers that changed, in the model's order, with bars relative to the longest."""
    layers = rows(data, "layers", numbers=("changed", "total"), texts=("name",))
    most = max((layer["changed"] for layer in layers), default=0)
    touched = [
        {**layer, "factor": number(layer, "mean_factor"), "share": 100 * layer["changed"] / max(1, layer["total"]),
         "width": 100 * layer["changed"] / most}
        for layer in layers if layer["changed"] > 0
    ]  # fmt: skip
    return {"all": len(layers), "touched": touched, "untouched": len(layers) - len(touched)}


def _pictures(data: dict[str, Any]) -> tuple[list[dict[str, str]], int]:
    """The pictures that fit, and how many do not."""
    found, room = [], PICTURE_BYTES
    pictures = rows(data, "pictures", texts=("png_base64",))
    for place, picture in enumerate(pictures):
        encoded = "".join(picture["png_base64"].split())
        try:
            is_png = base64.b64decode(encoded, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
        except ValueError:
            is_png = False
        if not is_png:
            raise ReportError(f"pictures[{place}].png_base64 is not a PNG in base64")
        if len(encoded) <= room:
            room -= len(encoded)
            title, caption = str(picture.get("title") or ""), str(picture.get("caption") or "")
            found.append({"title": title, "caption": caption, "source": f"data:image/png;base64,{encoded}"})
    return found, len(pictures) - len(found)


def _timings(data: dict[str, Any]) -> dict[str, float]:
    timings = table(data, "timings")
    return {str(name): number(timings, name) or 0.0 for name in timings}
