"""What a person sees of a benchmark under way: a line for each finished run, and a live table where there is a terminal."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Self

from potion.bench.plan import Run
from potion.bench.runner import Deadline

__all__ = ["Board", "duration"]


class Board:
    """The report of :mod:`potion.bench.runner`: lines on stdout, the live table on stderr."""

    def __init__(self, runs: Sequence[Run], done: int, deadline: Deadline, *, quiet: bool, as_json: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._total, self._done, self._deadline, self._as_json = len(runs), done, deadline, as_json
        self._planned = Counter(run.method for run in runs)
        self._records: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._out = Console(quiet=quiet, soft_wrap=True, highlight=False)
        self._errors = Console(stderr=True, soft_wrap=True, highlight=False)
        self._quiet, self._now, self._phase = quiet, "", ""
        self._begun = self._run_begun = time.monotonic()
        shown = self._errors.is_terminal and not quiet
        self._live = Live(console=self._errors, get_renderable=self._table, transient=True) if shown else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def stop(self, notice: float) -> bool:
        """Whether a training should write its checkpoint and end, which takes ``notice`` seconds."""
        return self._deadline.near(notice)

    def phase(self, what: str, done: int = 0, total: int = 0) -> None:
        """What goes on inside the run."""
        self._phase = f"{what}, {done:,} of {total:,} iterations" if total else what

    def started(self, run: Run) -> None:
        """A run begins."""
        self._now, self._phase, self._run_begun = _name(run), "", time.monotonic()

    def finished(self, run: Run, record: dict[str, Any]) -> None:
        """A run is written."""
        self._done += 1
        self._records[run.method].append(record)
        if self._as_json:
            self._line(json.dumps({key: record[key] for key in record if key not in ("trace", "points", "curve")}))
        elif not self._quiet:
            status = "" if record["status"] in (None, "healed") else f", {record['status']}"
            self._line(
                f"[{self._done}/{self._total}] {_name(run)}: healed {record['healed']:.1f} %, damage "
                f"{record['damage']:+.2f}, clean {record['clean_accuracy']:.1f} %{status}, {duration(record['seconds'])}"
            )
        self._now = self._phase = ""

    def failed(self, run: Run, error: Exception) -> None:
        """A run broke; the others go on."""
        self._errors.print(f"potion: {_name(run)} failed: {type(error).__name__}: {error}", markup=False)

    def _line(self, text: str) -> None:
        # Above the live table where both share the terminal; --json is printed in spite of --quiet.
        console = self._errors if self._live is not None and self._out.is_terminal else self._out
        console.quiet = False
        console.print(text, markup=False)

    def _table(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, title=f"{self._done} of {self._total} runs, {self._time_left()}")
        for title in ("method", "runs here", "healed", "damage", "seconds a run"):
            table.add_column(title, justify="left" if title == "method" else "right")
        for method, planned in self._planned.items():
            records = self._records[method]
            means = [_mean([record[key] for record in records]) for key in ("healed", "damage", "seconds")]
            table.add_row(method, f"{len(records)} ({planned} planned)", *means)
        spent = duration(time.monotonic() - self._run_begun)
        now = f"now: {self._now}{', ' + self._phase if self._phase else ''}, {spent}" if self._now else self._phase
        return Group(table, now)

    def _time_left(self) -> str:
        spent, done = time.monotonic() - self._begun, sum(map(len, self._records.values()))
        if not done:
            return "time left not known yet"
        guess = spent / done * (self._total - self._done)
        budget = "" if self._deadline.at is None else f", {duration(max(0, self._deadline.left()))} of the budget"
        return f"about {duration(guess)} left{budget}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _name(run: Run) -> str:
    known = f", {run.known} known" if run.known else ""
    return f"{run.method}, {run.attack.label}, {run.poisoned} poisoned{known}, seed {run.seed}"


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.1f}" if values else "-"
