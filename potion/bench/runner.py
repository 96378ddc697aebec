"""The local engine: runs one after the other, beside other runners on the same folder, until done or out of time."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from potion.bench.models_folder import Busy, claimed, work_folder
from potion.bench.plan import Run
from potion.bench.results import Results
from potion.bench.scene import Watch
from potion.bench.workshop import Workshop
from potion.training import Stopped

__all__ = ["Deadline", "OutOfTime", "Report", "Tally", "run_here"]

PAUSE: Final = 1.0
"""Seconds between two looks at what other runners hold."""


class OutOfTime(BaseException):
    """The budget is spent; not an error, and not to be caught by anything that handles errors."""


class Report(Watch, Protocol):
    """Somebody who wants to know how the runs go."""

    def started(self, run: Run) -> None: ...

    def finished(self, run: Run, record: dict[str, Any]) -> None: ...

    def failed(self, run: Run, error: Exception) -> None: ...


@dataclass
class Tally:
    """How a call ended: ``left`` were not begun or not finished, because time was up or others are at them."""

    done: int = 0
    failed: int = 0
    left: int = 0
    out_of_time: bool = False


@dataclass(frozen=True)
class Deadline:
    """The end of the budget, on the monotonic clock; ``None`` is never."""

    at: float | None = field(default=None)

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def left(self) -> float:
        """Seconds left."""
        return float("inf") if self.at is None else self.at - time.monotonic()

    def near(self, notice: float) -> bool:
        """Whether something that takes ``notice`` seconds must be done now; if so, no alarm comes in between."""
        near = self.left() < notice
        if near and hasattr(signal, "SIGALRM"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        return near

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise :class:`OutOfTime` in the block when time is up, wherever it is: results are written whole or not at all."""
        if self.at is None or not hasattr(signal, "SIGALRM"):
            yield
            return

        def ring(*_: Any) -> None:
            raise OutOfTime

        before = signal.signal(signal.SIGALRM, ring)
        # Again every few seconds: an exception that comes while an object is being deleted is ignored by Python.
        signal.setitimer(signal.ITIMER_REAL, max(0.01, self.left()), 5.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def run_here(runs: Sequence[Run], results: Results, workshop: Workshop, report: Report, deadline: Deadline) -> Tally:
    """Perform what is missing. A run that another runner holds, or whose victim it trains, is tried again later."""
    tally = Tally()
    locks = work_folder(results.folder) / "locks"
    waiting = [run for run in runs if not results.has(run)]
    try:
        with deadline.enforced():
            if waiting:
                workshop.loaded(waiting[0])  # of the whole suite: without its data nothing is tried
            while waiting:
                before = len(waiting)
                waiting = [run for run in waiting if not _tried(run, results, workshop, report, tally, locks)]
                if waiting and len(waiting) == before:
                    report.phase(f"waiting for other runners: {before} runs")
                    time.sleep(PAUSE)
    except (OutOfTime, Stopped):
        tally.out_of_time = True
    tally.left = sum(not results.look(run) for run in runs) - tally.failed
    return tally


def _tried(run: Run, results: Results, workshop: Workshop, report: Report, tally: Tally, locks: Path) -> bool:
    """Whether the run need not be looked at again: done here, done by others, or failed."""
    try:
        with claimed(locks / f"{run.suite}-{run.key}.lock"):
            if results.look(run):
                return True
            report.started(run)
            record = workshop.perform(run)
            results.write(run, record)
            workshop.tidy()
    except Busy:
        return False
    except Stopped:
        raise
    except Exception as error:  # one broken run must not stop a night's work; it is reported and counted
        tally.failed += 1
        report.failed(run, error)
        return True
    tally.done += 1
    report.finished(run, record)
    return True
