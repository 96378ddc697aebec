"""Progress bars on stderr, only where a person is watching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

__all__ = ["Progress"]

T = TypeVar("T")


class Progress:
    """``with Progress(True) as bars: for x in bars.track(xs, "what"): ...``. Silent into a pipe."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._bars: Any = None
        self._task: Any = None

    @property
    def shown(self) -> bool:
        """Whether somebody can see the bars."""
        return self._bars is not None

    def __enter__(self) -> Self:
        if self._wanted:
            from rich import progress
            from rich.console import Console

            console = Console(stderr=True)
            if console.is_terminal:
                columns = (*progress.Progress.get_default_columns(), progress.MofNCompleteColumn())
                self._bars = progress.Progress(*columns, console=console, transient=True).__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._bars is not None:
            self._bars.__exit__(*exception)
            self._bars = None

    def track(self, items: Iterable[T], description: str, total: int | None = None, done: int = 0) -> Iterator[T]:
        """Yield the items, moving a bar of its own."""
        if self._bars is None:
            yield from items
            return
        self._task = self._bars.add_task(description, total=total, completed=done)
        for item in items:
            yield item
            self._bars.advance(self._task)

    def note(self, description: str) -> None:
        """Say something else on the bar that moved last."""
        if self._bars is not None:
            self._bars.update(self._task, description=description)
