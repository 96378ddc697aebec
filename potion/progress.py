"""Progress bars on stderr, only where a person is watching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

__all__ = ["Progress"]

T = TypeVar("T")


class Progress:
    """``with Progress(shown) as bars: for x in bars.track(xs, "what"): ...``. Silent into a pipe."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._bars: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich import progress
            from rich.console import Console

            console = Console(stderr=True)
            columns = (*progress.Progress.get_default_columns(), progress.MofNCompleteColumn())
            self._bars = progress.Progress(
                *columns, console=console, transient=True, disable=not console.is_terminal
            ).__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._bars is not None:
            self._bars.__exit__(*exception)

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield the items, moving a bar of its own."""
        if self._bars is None:
            yield from items
            return
        task = self._bars.add_task(description, total=total)
        for item in items:
            yield item
            self._bars.advance(task)
