"""What heal and patch say on a terminal; plain text into a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["minutes", "print_layers", "show_plan", "show_record", "table"]

MOST: Final = 12
"""Layers in a table; there may be hundreds."""


def show_record(record: dict[str, Any], folder: Path, files: Sequence[str]) -> None:
    """A finished heal: the sentence, where the weights are, the scores, the files."""
    console = _console()
    console.print(record["summary"], soft_wrap=True)
    _print_warnings(record["warnings"])
    if record["layers"] and not record.get("treatment"):  # an antidote moves every weight a little
        print_layers(record["layers"])
    if scores := record["scores"]:
        _print_scores(scores)
    console.print("written: " + ", ".join(str(folder / file) for file in files), soft_wrap=True)


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        _console().print(f"Note: {warning}", soft_wrap=True)


def print_layers(layers: Sequence[dict[str, Any]]) -> None:
    """The layers with most changes first."""
    ordered = sorted(layers, key=lambda layer: -layer["changed"])
    rows = [
        [
            layer["name"],
            f"{layer['changed']:,}",
            "-" if not layer["weights"] else f"{100 * layer['changed'] / layer['weights']:.2f} %",
            f"{layer['mean_factor']:.3f}",
            f"{layer['least_factor']:.3f}",
        ]
        for layer in ordered[:MOST]
    ]
    if rest := ordered[MOST:]:
        rows.append([f"{len(rest)} more", f"{sum(layer['changed'] for layer in rest):,}", "", "", ""])
    table(["layer", "weights changed", "of the layer", "times, on average", "lowest"], rows)


def _print_scores(scores: dict[str, Any]) -> None:
    titles = {
        "clean_accuracy": "accuracy on clean images, %",
        "clean_label_accuracy": "true class under the trigger, %",
        "attack_success_rate": "attack works, %",
    }

    def cell(when: str, key: str) -> str:
        value = None if scores[when] is None else scores[when][key]
        return "-" if value is None else f"{value:.1f}"

    table(["", "before", "after"], [[title, cell("before", key), cell("after", key)] for key, title in titles.items()])


def show_plan(plan: dict[str, Any]) -> None:
    """What would be done; only a search goes on until enough of the known poison has fallen."""
    until = f"until at most {plan['rho']:.0%} of that are left"
    normalised = "as they are" if plan["mean"] is None else f"less {plan['mean']}, by {plan['std']}"
    table(
        ["would heal", plan["model"]],
        [
            ["weights", f"{plan['weights']:,}, on {plan['device']}"],
            ["training set", f"{plan['samples']:,} images of {'x'.join(map(str, plan['image']))}, {normalised}"],
            ["classes", str(plan["classes"])],
            ["known poison", f"{plan['known']}, of which {plan['known_obeying']} obey the trigger"],
            ["method", plan["method"] if plan["method"] == "antidote" else f"{plan['method']}, {until}"],
            ["time", f"about {minutes(plan['seconds'])}"],
        ],
        numbers=False,
    )
    _print_warnings(plan["warnings"])


def minutes(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> None:
    """A table whose columns after the first hold numbers, or text."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD)
    for place, title in enumerate(titles):
        shown.add_column(title, justify="right" if numbers and place else "left", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    _console().print(shown)


def _console() -> Console:
    """A terminal that takes brackets and colons for what they are: paths and names are full of them."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)
