"""The pictures of docs/antidote.md.

    python scripts/antidote_figures.py quarantine                       # a minute: results/antidote-quarantine/embedded.json
    python scripts/antidote_figures.py triggers RESULTS [ATTACK ...]    # RESULTS keeps the victims of antidote-small
    python scripts/antidote_figures.py draw                             # draws what result files tell

*quarantine*: where the samples with the attacker's label are placed, before and after the first lesson, of the victim that
comes with the package. *triggers*: the known sample, what was localised in it, transplants, and what poison adds on average.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from antidote_results import SUITES, TRIGGERS, records
from between_markers import ROOT
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import potion
from potion.antidote.course import first_lesson
from potion.antidote.laboratory import triggers_in
from potion.antidote.outliers import clean_middle
from potion.antidote.ward import Ward
from potion.batches import labels_of
from potion.bench.plan import plan
from potion.bench.suite import load_suite
from potion.bench.workshop import Workshop
from potion.embedded import Embedded, embedded_model
from potion.files import replacing, write_json
from potion.provenance import machine

FIGURES = ROOT / "docs/figures"
QUARANTINE = ROOT / "results/antidote-quarantine/embedded.json"
CPU = torch.device("cpu")
CLEAN, POISON, LIMIT = "#0072b2", "#d55e00", "0.35"


def figure(width: float, height: float) -> Figure:
    drawn = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawn)
    return drawn


def save(drawn: Figure, name: str) -> None:
    """Without a date and random names: the same results make the same bytes."""
    rcParams["svg.hashsalt"] = "potion"
    kind = Path(name).suffix[1:]
    about = {"Date": None} if kind == "svg" else {"Software": None}
    replacing(FIGURES / name, partial(drawn.savefig, format=kind, dpi=130, metadata=about))


def quarantine() -> None:
    """One known sample, its trigger, one lesson: the margins of everybody who shares its label."""
    embedded = Embedded()
    data, known = embedded.train_set(), embedded.known(1)
    victim = embedded_model("victim").requires_grad_(False)
    batch_size, labels = embedded.recipe.batch_size, labels_of(data)
    ward = Ward(
        victim=victim, train_set=data, plain_set=data.plain(), labels=labels, listed=known, device=CPU,
        batch_size=batch_size,
    )  # fmt: skip
    triggers = triggers_in(ward, ward.known, ward.settings.sources)
    taught = first_lesson(ward, triggers)
    poison = set(embedded.poison())
    found = {
        "poison": [index in poison for index in ward.quarantined],
        "before": ward.margins(victim, ward.quarantined)[0].tolist(),
        "after": ward.margins(taught, ward.quarantined)[0].tolist(),
        "machine": machine(CPU),
    }
    QUARANTINE.parent.mkdir(parents=True, exist_ok=True)
    write_json(QUARANTINE, found)


def draw_quarantine() -> None:
    found = json.loads(QUARANTINE.read_text())
    poison = torch.tensor(found["poison"])
    drawn = figure(8.4, 2.9)
    for place, (when, title) in enumerate((("before", "the poisoned model"), ("after", "after one lesson"))):
        margins = torch.tensor(found[when], dtype=torch.float64)
        axes = drawn.add_subplot(1, 2, place + 1)
        shown: dict[str, Any] = {"bins": 40, "range": (float(margins.min()), float(margins.max())), "alpha": 0.75}
        axes.hist(margins[~poison], color=CLEAN, label=f"{int((~poison).sum()):,} clean samples", **shown)
        axes.hist(margins[poison], color=POISON, label=f"{int(poison.sum())} poisoned ones that nobody knows", **shown)
        if when == "after":
            middle, high = clean_middle(margins)
            axes.axvline(float(middle), color=LIMIT, lw=1, ls=":", label="the middle of the clean")
            axes.axvline(float(2 * middle - high), color=LIMIT, lw=1, ls="--", label="out of place below")
        axes.set(title=title, ylabel="samples" if place == 0 else "")
        axes.spines[["top", "right"]].set_visible(False)
    drawn.supxlabel("by how much the attacker's label wins (logits)", fontsize=10)
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    save(drawn, "antidote-quarantine.svg")


def draw_campaign() -> None:
    """Accuracy under the trigger before and after, from one known sample, in percent of a clean retrain's; a dot a seed."""
    drawn = figure(8.4, 5.4)
    for column, (suite, placed) in enumerate(SUITES.items()):
        axes = drawn.add_subplot(1, 2, column + 1)
        before: dict[tuple[int, int], list[float]] = {}
        after: dict[tuple[int, int], list[tuple[float, bool]]] = {}
        for record in records(suite, "antidote"):
            if record["known"] == 1:
                key = (list(TRIGGERS).index(record["scenario"]["attack"]), record["scenario"]["poisoned"])
                reference = record["reference"]["clean_label_accuracy"]
                was = 100 * record["victim"]["clean_label_accuracy"] / reference
                before.setdefault(key, []).append(was)
                after.setdefault(key, []).append((record["healed"], record["status"] == "healed"))
        keys = sorted(after, reverse=True)
        for row, key in enumerate(keys):
            axes.plot(before[key], [row] * len(before[key]), "o", ms=4, color=POISON, alpha=0.7)
            for healed, found in after[key]:
                axes.plot(healed, row, "o", ms=5, mec=CLEAN, mfc=CLEAN if found else "white")
        names = [f"{list(TRIGGERS.values())[place]}, {poisoned}" for place, poisoned in keys]
        axes.axvline(100, color=LIMIT, lw=1, ls=":")
        axes.set_yticks(range(len(keys)), names if column == 0 else [""] * len(keys), fontsize=8)
        axes.set(title=placed, xlim=(0, 125))
        axes.spines[["top", "right"]].set_visible(False)
    drawn.supxlabel("images under the trigger that get their true class, in percent of a clean retrain's", fontsize=10)
    for label, edge, face in (
        ("the poisoned model", POISON, POISON),
        ("the antidote, from one known sample", CLEAN, CLEAN),
        ("nothing found, nothing changed", CLEAN, "white"),
    ):
        drawn.axes[0].plot([], [], "o", ms=5, ls="", label=label, mec=edge, mfc=face)
    drawn.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    save(drawn, "antidote-campaign.svg")


def triggers(results: str, *attacks: str) -> None:
    """A row a trigger: what the antidote shows of it, from one known sample of the first victim of each attack."""
    workshop, rows = Workshop(Path(results) / ".work/models"), {}
    for run in plan(load_suite("antidote-small"), [0]):
        if run.method != "antidote" or run.known != 1 or (attacks and run.attack.label not in attacks):
            continue
        scene = workshop.scene(run)
        result = potion.heal(
            scene.victim.model, scene.train_set, scene.known(1), "antidote", batch_size=scene.recipe.batch_size,
            unaugmented=scene.train_set.plain(), device=CPU, progress=False,
        )  # fmt: skip
        print(run.attack.label, result.summary(), flush=True)
        if result.treatment is not None:
            rows[run.attack.label] = result.treatment.pictures()
    draw_triggers(rows)


def draw_triggers(rows: dict[str, list[Any]]) -> None:
    columns = max(map(len, rows.values()))
    drawn = figure(1.15 * columns, 1.45 * len(rows))
    for row, (label, pictures) in enumerate(rows.items()):
        for column, (title, caption, picture) in enumerate(pictures):
            axes = drawn.add_subplot(len(rows), columns, row * columns + column + 1)
            axes.imshow(picture[0] if len(picture) == 1 else picture.permute(1, 2, 0), cmap="gray", vmin=0, vmax=255)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(title if column in (1, 5) or column == 0 else "", fontsize=7)
            told = caption.replace("the poisoned model ", "").replace(" of cases", "").replace(", on grey", "")
            axes.set_xlabel(told if column in (1, 2, 6) else "", fontsize=6)
            if column == 0:
                axes.set_ylabel(TRIGGERS[label], fontsize=8)
    save(drawn, "antidote-triggers.png")


def main() -> None:
    what, *rest = sys.argv[1:] or sys.exit(__doc__)
    FIGURES.mkdir(parents=True, exist_ok=True)
    if what == "quarantine":
        quarantine()
    elif what == "triggers":
        triggers(*rest)
    draw_quarantine()
    draw_campaign()


if __name__ == "__main__":
    main()
