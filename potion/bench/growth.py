"""How something grows: a line through measured seconds, and the exponent that fits them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Fit", "fitted", "grown"]


@dataclass(frozen=True)
class Fit:
    """Seconds = intercept + slope * size by least squares, and the exponent of seconds ~ size ** exponent."""

    exponent: float
    intercept: float
    slope: float


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """A line through the points, and one through their logarithms."""
    slope, intercept = statistics.linear_regression(sizes, seconds)
    exponent, _ = statistics.linear_regression([math.log(size) for size in sizes], [math.log(each) for each in seconds])
    return Fit(exponent, intercept, slope)


def grown(sizes: Sequence[int], seconds: Sequence[float]) -> dict[str, Any]:
    """Sizes and seconds with their fit, ready for JSON."""
    fit = fitted(sizes, seconds)
    return {"sizes": list(sizes), "seconds": list(seconds), **vars(fit)}
