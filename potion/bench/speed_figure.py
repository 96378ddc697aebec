"""The figure of ``potion bench speed``: where the time of a heal goes, and how it grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw_speed"]


def draw_speed(path: Path, found: dict[str, Any]) -> None:
    """Where the time of a heal goes, and how it grows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = len(found["scaling"])
    figure = Figure(figsize=(3.6 * (panels + 1), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(1, panels + 1, 1)
    phases = found["phases"]
    axes.barh(list(phases), list(phases.values()), color="#0072b2")
    axes.axvline(found["plain_pass_seconds"], color="#d55e00", ls="--", lw=1.5, label="one plain pass")
    axes.invert_yaxis()
    axes.set(xlabel="seconds")
    axes.set_title(f"{found['workload']}, {found['method']}: heal in {found['heal_seconds']:.2f} s", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    for place, (name, series) in enumerate(found["scaling"].items(), 2):
        axes = figure.add_subplot(1, panels + 1, place)
        axes.loglog(series["sizes"], series["seconds"], "o-", color="#009e73")
        axes.set(xlabel=name, ylabel="seconds")
        axes.set_title(f"exponent {series['exponent']:.2f}", fontsize=10)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=130)
