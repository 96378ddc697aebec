"""The demo: heal the embedded victim with every method, from half of the poison, from a tenth and from one sample."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file
from torch import nn
from torch.utils.data import Subset

from potion.embedded import Embedded, embedded_model
from potion.files import check_writable, replacing, writable_folder, write_json
from potion.heal import heal
from potion.metrics import Scores, accuracy, damage, evaluate, healed
from potion.provenance import machine
from potion.result import HealResult
from potion.runtime import best_device
from potion.tradeoff import around, tradeoff

__all__ = ["Demo", "Row", "draw_tradeoff"]

METHODS: Final = ("ssd", "lf", "xlf", "antidote")
SHARES: Final = {"ssd": (100, 20, 1), "lf": (100, 20, 1), "xlf": (100, 20, 1), "antidote": (1,)}
HEADLINE: Final = ("xlf", 100)
FILES: Final = ("healed.safetensors", "patch.safetensors", "result.json", "tradeoff.png")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. Scores in percent; ``None`` is a figure that the method does not have."""

    method: str
    known: int
    status: str | None
    clean_accuracy: float
    clean_label_accuracy: float
    attack_success_rate: float
    healed: float
    damage: float
    steps: int | None
    seconds: float | None


class Demo:
    """The embedded scenario, ready to be healed; ``seed`` draws the known poison out of all of it."""

    def __init__(self, seed: int = 0, *, methods: Collection[str] = METHODS, progress: bool = True) -> None:
        unknown = [method for method in methods if method not in METHODS]
        if unknown:
            raise ValueError(f"unknown method {unknown[0]!r}; the demo has {', '.join(METHODS)}")
        self.seed, self.progress = seed, progress
        self.methods = [method for method in METHODS if method in {*methods, HEADLINE[0]}]
        self.scenario = Embedded()
        self.train_set = self.scenario.train_set()
        self.plain_set = self.scenario.train_set().plain()
        self.victim = embedded_model("victim")
        self.before = self._scores(self.victim)
        self.reference = self._scores(embedded_model("retrain_clean"))
        self.results: dict[tuple[str, int], HealResult] = {}

    def rows(self) -> Iterator[Row]:
        """The table, line by line as it is found; the results behind it are kept in ``results``."""
        yield self._row("none", 0, self.before)
        yield self._row("retrain", HEADLINE[1], self._scores(embedded_model("retrain_half")))
        with tempfile.TemporaryDirectory(prefix="potion-demo-") as cache:
            for known in (100, 20, 1):
                for method in (method for method in self.methods if known in SHARES[method]):
                    result = self._heal(method, known, cache)
                    self.results[method, known] = result
                    yield self._row(method, known, self._scores(result.model), result)

    def curve(self, points: int = 20) -> list[dict[str, float]]:
        """Accuracy on the known poison and on clean data against s: up to the stop of the search and well beyond it."""
        result = self.results[HEADLINE]
        known = Subset(self.plain_set, self.scenario.known(HEADLINE[1], self.seed))

        def score(model: nn.Module) -> dict[str, float]:
            return {"known": accuracy(model, known), "clean": accuracy(model, self.scenario.test)}

        curve = tradeoff(self.victim, result, around(result, points), score)
        return [{"s": point.s, "weights": point.weights, **scores} for point, scores in curve]

    @staticmethod
    def check_free(folder: Path) -> None:
        """An ``OSError`` where the demo's files would take the place of something that no demo wrote."""
        there = [name for name in FILES if (folder / name).exists()]
        if there and not _of_a_demo(folder / "result.json"):
            raise FileExistsError(
                f"--out {folder} holds {', '.join(there)}, and not from a demo: choose another folder"
            )
        check_writable(folder)

    def save(self, folder: Path, rows: list[Row]) -> list[Path]:
        """Write the headline's weights, patch and trade-off curve, and everything as JSON; returns the files."""
        result, curve = self.results[HEADLINE], self.curve()
        weights = {name: tensor.contiguous() for name, tensor in result.model.state_dict().items()}
        results = [found.to_dict() for found in self.results.values()]
        everything = {
            "seed": self.seed,
            "rows": [asdict(row) for row in rows],
            "results": results,
            "curve": curve,
            "provenance": machine(best_device()),
        }
        *files, picture = (writable_folder(folder) / name for name in FILES)
        replacing(files[0], lambda partial: save_file(weights, partial))
        result.patch.save(files[1])
        write_json(files[2], everything)
        if importlib.util.find_spec("matplotlib") is not None:  # the picture needs the extra `bench`, the rest does not
            replacing(picture, lambda partial: draw_tradeoff(partial, everything))
            files.append(picture)
        return files

    def _heal(self, method: str, known: int, cache: str) -> HealResult:
        # All of S_tr for the retain importances (Alg. 1 as printed), so that one pass serves the three known sets.
        return heal(
            self.victim,
            self.train_set,
            self.scenario.known(known, self.seed),
            method,
            batch_size=self.scenario.recipe.batch_size,
            unaugmented=self.plain_set,
            retain="all",
            cache=cache,
            progress=self.progress,
        )

    def _scores(self, model: nn.Module) -> Scores:
        return evaluate(model, self.scenario.test, self.scenario.attack)

    def _row(self, method: str, known: int, scores: Scores, result: HealResult | None = None) -> Row:
        return Row(
            method=method,
            known=known,
            status=None if result is None else result.status.value,
            **asdict(scores),
            healed=healed(scores, self.reference),
            damage=damage(scores, self.before),
            steps=None if result is None else len(result.trace),
            seconds=None if result is None else sum(result.timings.values()),
        )


def _of_a_demo(record: Path) -> bool:
    try:
        return "rows" in json.loads(record.read_text())
    except (OSError, ValueError):
        return False


def draw_tradeoff(path: Path, saved: dict[str, Any]) -> None:
    """The trade-off picture of a saved demo: how far to go, and what it costs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    method, known = HEADLINE
    curve = saved["curve"]
    result = next(r for r in saved["results"] if (r["method"], r["known"]) == HEADLINE)
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    s = [point["s"] for point in curve]
    axes.plot(s, [point["clean"] for point in curve], color="#0072b2", lw=2, label="clean test images: keep this high")
    axes.plot(
        s, [point["known"] for point in curve], color="#d55e00", lw=2, label="known poison obeys: bring this down"
    )
    if result["chosen"] is not None:
        goal = 100 * result["search"]["rho"] * result["known_accuracy"]
        axes.axhline(goal, color="0.6", lw=1, ls=":")
        axes.axvline(result["chosen"]["s"], color="0.4", lw=1, ls="--")
        axes.annotate(
            f"search stops here:\n{result['weights_changed']} of 143,296 weights",
            (result["chosen"]["s"], 68), xytext=(8, 0), textcoords="offset points", va="center",
        )  # fmt: skip
    axes.set(xscale="log", ylim=(0, 103), xlabel="s: how much of the model may change", ylabel="accuracy, %")
    axes.set_title(f"{method.upper()} from {known} of 200 poisoned samples")
    axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.36), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=150)
