"""Figures from result files, as PNG and SVG: curves over the known share, sensitivity, trade-off, times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from potion.bench.results import Results
from potion.bench.tables import NAMES
from potion.bench.toy import toy_figure
from potion.files import replacing
from potion.gallery import attacks_figure, example_image

__all__ = ["draw_all"]

COLOURS: Final = {
    "none": "#777777", "retrain": "#000000", "xlf": "#d55e00", "lf": "#0072b2", "ssd": "#009e73", "ssd_grid": "#e69f00",
    "assd": "#f0b94d", "finetune": "#cc79a7", "scrub": "#56b4e9", "bad_teacher": "#882255", "antidote": "#aa3377",
}  # fmt: skip
MARKERS: Final = {"xlf": "o", "lf": "s", "ssd": "^", "ssd_grid": "v", "retrain": "x", "none": "."}
SCORES: Final = (
    ("clean_label_accuracy", "true class under the trigger, %"),
    ("clean_accuracy", "clean accuracy, %"),
)
Record = dict[str, Any]


def draw_all(found: Sequence[Results], folder: Path) -> list[str]:
    """Draw everything that the results of some suites allow; returns the names of the figures."""
    figures: dict[str, Any] = {"attacks": attacks_figure(example_image()), "importance-toy": toy_figure()}
    for results in found:
        records = list(results.records.values())
        if records:
            figures |= dict(_figures(records[0]["suite"], records))
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            # No date and no random names in the file: the same results make the same bytes.
            about = {"Date": None} if kind == "svg" else {"Software": None}
            replacing(folder / f"{name}.{kind}", partial(figure.savefig, format=kind, dpi=130, metadata=about))
    return list(figures)


def _figures(suite: str, records: list[Record]) -> Iterator[tuple[str, Any]]:
    yield suite, _curves(records)
    points = [record for record in records if len({point["rho"] for point in record.get("points", [])}) > 1]
    for method in dict.fromkeys(record["method"] for record in points):
        for step in sorted({point["step"] for record in points for point in record["points"]}):
            mine = [record for record in points if record["method"] == method]
            yield f"{suite}-rho-{method}-step-{step:g}", _sensitivity(mine, step)
    if any(len({point["step"] for point in record.get("points", [])}) > 1 for record in records):
        for mine in _scenarios(records).values():
            yield f"{suite}-times-m{mine[0]['scenario']['poisoned']}", _times(mine)
    curves = [record for record in records if record.get("curve") and record["status"] == "healed"]
    if curves:
        yield f"{suite}-tradeoff", _tradeoff(max(curves, key=_telling))


def _telling(record: Record) -> tuple[bool, float]:
    """XLF, and close to half of the poison known, shows the trade-off best."""
    return record["method"] == "xlf", -abs(record["known"] / record["scenario"]["poisoned"] - 0.5)


def _curves(records: list[Record]) -> Any:
    """A row for each |S_m|, a column for each score, a line for each method; bands are the lowest and highest seed."""
    rows = _scenarios(records)
    figure = _figure(9.6, 2.9 * len(rows) + 0.5)
    for place, (title, mine) in enumerate(rows.items()):
        shares = _shares(mine)
        for column, (score, label) in enumerate(SCORES):
            axes = figure.add_subplot(len(rows), 2, 2 * place + column + 1)
            for method in sorted({record["method"] for record in mine}, key=_order):
                lines = _by_share([record for record in mine if record["method"] == method], shares, score)
                _line(axes, shares, lines, method)
            _finish(axes, shares, mine, title, label, reference=score)
    _legend(figure)
    return figure


def _sensitivity(records: list[Record], step: float) -> Any:
    """A line for each rho."""
    import matplotlib as mpl

    rows = _scenarios(records)
    rhos = sorted({point["rho"] for record in records for point in record["points"]})
    colours = mpl.colormaps["viridis"]
    figure = _figure(9.6, 2.9 * len(rows) + 0.5)
    for place, (title, mine) in enumerate(rows.items()):
        shares = _shares(mine)
        for column, (score, label) in enumerate(SCORES):
            axes = figure.add_subplot(len(rows), 2, 2 * place + column + 1)
            for k, rho in enumerate(rhos):
                lines: dict[int, list[float]] = defaultdict(list)
                for record in mine:
                    lines[record["known"]] += [
                        point[score] for point in record["points"] if (point["rho"], point["step"]) == (rho, step)
                    ]
                means = [fmean(lines[known]) for known in shares]
                colour = colours(0.92 * k / max(1, len(rhos) - 1))
                axes.plot(range(len(shares)), means, "o-", ms=3, lw=1.4, color=colour, label=rf"$\rho$ = {rho:g}")
            _finish(axes, shares, mine, title, label, reference=score)
    _legend(figure)
    name = _name(records[0]["method"])
    figure.suptitle(f"{name}, step {step:g}: where the search stops", fontsize=11)
    return figure


def _times(records: list[Record]) -> Any:
    """Mean seconds and their spread over the shares: for each method, and for each step size of its search."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for record in records:
        name = _name(record["method"]) + (" (one setting)" if record["method"] == "assd" else "")
        if record["run"]["search"] is None:
            if record["method"] != "none":
                seconds[name].append(record["seconds"])
            continue
        fixed = sum(spent for phase, spent in record["timings"].items() if phase != "search")
        rho = record["run"]["search"]["rho"]
        for point in record["points"]:  # none where the trigger was not learned and nothing was searched
            if point["rho"] == rho:
                seconds[f"{name}, step {point['step']:g}"].append(fixed + point["search_seconds"])
    names = sorted(seconds, key=lambda name: fmean(seconds[name]), reverse=True)
    figure = _figure(7.6, 0.42 * len(names) + 1.4)
    axes = figure.add_subplot()
    means = [fmean(seconds[name]) for name in names]
    spreads = [stdev(seconds[name]) if len(seconds[name]) > 1 else 0.0 for name in names]
    axes.barh(names, means, xerr=spreads, color="#56b4e9", error_kw={"lw": 1})
    beside: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
    for place, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
        axes.annotate(f"{mean:.2f} s", (mean + spread, place), **beside)
    axes.set(xscale="log", xlabel=f"seconds, mean and deviation over the shares ({records[0]['provenance']['device']})")
    axes.set_xlim(min(means) / 2, max(means) * 4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(records[0]), fontsize=11)
    return figure


def _tradeoff(record: Record) -> Any:
    """Known poison and test accuracy against alpha, with the place where the search stopped."""
    figure = _figure(7.6, 4.3)
    axes = figure.add_subplot()
    curve, stop = record["curve"], record["chosen"]
    alphas = [point["alpha"] for point in curve]
    known = [100 * point["known_accuracy"] for point in curve]
    axes.plot(alphas, known, color="#d55e00", lw=2, label="known poison obeys")
    axes.plot(alphas, _column(curve, SCORES[0][0]), color="#009e73", lw=2, label="true class under the trigger")
    axes.plot(alphas, _column(curve, SCORES[1][0]), color="#0072b2", lw=2, label="clean accuracy")
    goal = 100 * record["run"]["search"]["rho"] * record["known_accuracy"]
    beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "color": "0.35"}
    axes.axhline(goal, color="0.6", lw=1, ls=":")
    axes.annotate(r"$\rho \cdot Acc(\infty)$", (alphas[0], goal), xytext=(2, 3), **beside)
    axes.axvline(stop["alpha"], color="0.4", lw=1, ls="--")
    axes.annotate(f"PTN stops:\n$\\alpha$ = {stop['alpha']:.3g}", (stop["alpha"], 90), xytext=(6, 0), **beside)
    axes.set(xscale="log", ylim=(0, 103), ylabel="accuracy, %")
    axes.set_xlabel(r"$\alpha$ (falling: more and more of the model changes)")
    axes.invert_xaxis()
    axes.legend(loc="lower left", bbox_to_anchor=(0.02, 0.28), frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{_name(record['method'])} from {record['known']} known, {_title(record)}", fontsize=11)
    return figure


def _order(method: str) -> tuple[int, str]:
    """Known methods in the order of their table, others after them."""
    names = list(NAMES)
    return names.index(method) if method in names else len(names), method


def _column(points: list[Record], key: str) -> list[float]:
    return [point[key] for point in points]


def _name(method: str) -> str:
    return NAMES.get(method, method)


def _scenarios(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each victim's attack and |S_m|, under a title."""
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda each: (each["scenario"]["attack"], each["scenario"]["poisoned"])):
        rows[_title(record)].append(record)
    return dict(rows)


def _title(record: Record) -> str:
    return f"{record['scenario']['attack']}, {record['scenario']['poisoned']:,} poisoned"


def _shares(records: Iterable[Record]) -> list[int]:
    return sorted({record["known"] for record in records if record["known"]}) or [0]


def _by_share(records: list[Record], shares: list[int], score: str) -> dict[int, list[float]]:
    """The score of each share, one a seed; the poisoned model is the same for all of them."""
    values: dict[int, list[float]] = defaultdict(list)
    for record in records:
        for share in shares if record["method"] == "none" else [record["known"]]:
            values[share].append(record[score])
    return values


def _line(axes: Any, shares: list[int], values: dict[int, list[float]], method: str) -> None:
    places = [place for place, share in enumerate(shares) if values[share]]
    each = [values[shares[place]] for place in places]
    colour, marker = COLOURS.get(method, "#444444"), MARKERS.get(method, "d")
    style = {"ls": ":" if method == "none" else "-", "lw": 2.0 if method == "xlf" else 1.3, "marker": marker, "ms": 4}
    axes.plot(places, [fmean(values) for values in each], color=colour, label=_name(method), **style)
    if any(len(values) > 1 for values in each):
        lows, highs = [min(values) for values in each], [max(values) for values in each]
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15, lw=0)


def _finish(axes: Any, shares: list[int], records: list[Record], title: str, label: str, *, reference: str) -> None:
    poisoned = records[0]["scenario"]["poisoned"]
    level = fmean(record["reference"][reference] for record in records)
    axes.axhline(level, color="0.75", lw=1, ls="--", zorder=0, label="retrain without any poison")
    names = ["one" if share == 1 else f"{100 * share / poisoned:.0f} %" for share in shares]
    axes.set_xticks(range(len(shares)), names, fontsize=8)
    axes.set(ylabel=label, xlabel="known poison")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92")


def _legend(figure: Any) -> None:
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)


def _figure(width: float, height: float) -> Any:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "potion"
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
