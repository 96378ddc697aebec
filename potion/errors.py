"""Other people's exceptions in one line, for sentences of ours."""

from __future__ import annotations

__all__ = ["told"]


def told(error: BaseException) -> str:
    """Type and first line; the type alone where there is no message, as a bare ``assert`` has none."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
