"""Finding the threshold: s -> percentile -> alpha (Eq. 7), and Poison Trigger Neutralisation search (Alg. 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from torch import nn

from potion.cursor import Cursor
from potion.dampening import joined
from potion.ranking import LARGEST_S, Ranking, flat_ratios
from potion.types import Importances, Look, Status, Step

__all__ = ["PTN", "Outcome", "alpha_at", "search", "steps_of", "walked"]

Strategy = Literal["sequential", "bisect"]
Stop = Literal["known", "trusted"]
FAR: Final = 0.10
"""So much trusted accuracy may be lost before ``stop="trusted"`` has seen enough."""
LAMBDA: Final = 1.0
"""PTN leaves the strength of the dampening alone and searches for alpha only."""


@dataclass(frozen=True, kw_only=True)
class PTN:
    """Settings of the search. The defaults are the paper's (``start`` as in FACTS 1).

    The search looks at s = start * |S_f| / |S_tr| * step^k for k = 0, 1, ... and takes the first s at which the accuracy
    on the known poison is at most ``rho`` times what it was. ``"sequential"`` walks (the paper); ``"bisect"`` gallops and
    then bisects the same grid: the same answer in O(log k) evaluations wherever the accuracy falls monotonically.

    Samples whose label is no attacker's are clean and rightly labelled: the accuracy on some of these *trusted* samples
    is an honest measure of damage. With ``guard`` the search gives up rather than lose more than so many points of it. With
    ``stop="trusted"`` it takes, instead of the first s below ``rho``, the one at which trusted accuracy minus the
    probability of the poisoned labels is largest, looking on until ten points are lost.
    """

    rho: float = 0.2
    start: float = 1 / 25
    step: float = 1.1
    strategy: Strategy = "sequential"
    max_steps: int = 500
    guard: float | None = None
    stop: Stop = "known"

    def __post_init__(self) -> None:
        for name in ("rho", "start", "step"):
            value = getattr(self, name)
            if isinstance(value, bool | str) or not hasattr(value, "__float__"):
                raise TypeError(f"{name} must be a number, got {value!r}")
            object.__setattr__(self, name, float(value))  # numpy's and torch's numbers do not go into JSON
        if isinstance(self.max_steps, bool) or not isinstance(self.max_steps, int):
            raise TypeError(f"max_steps must be a whole number, got {self.max_steps!r}")
        if not 0 <= self.rho < 1:
            raise ValueError(
                f"rho must be in [0, 1), the share of the known poison's accuracy to stop at, got {self.rho}"
            )
        if not (math.isfinite(self.start) and self.start >= 1e-30):
            raise ValueError(f"start must be a positive number, at least 1e-30, got {self.start}")
        if not (math.isfinite(self.step) and self.step > 1):
            raise ValueError(f"step must be above 1, each s is that many times the one before, got {self.step}")
        if self.strategy not in get_args(Strategy):
            raise ValueError(f"strategy must be one of {', '.join(get_args(Strategy))}, got {self.strategy!r}")
        if self.guard is not None and not (isinstance(self.guard, float | int) and 0 <= self.guard <= 100):
            raise ValueError(f"guard must be a number of points from 0 to 100, or None, got {self.guard!r}")
        if self.stop not in get_args(Stop):
            raise ValueError(f"stop must be one of {', '.join(get_args(Stop))}, got {self.stop!r}")
        if self.stop == "trusted" and self.strategy != "sequential":
            raise ValueError("stop='trusted' compares all points on the way: it needs strategy='sequential'")
        if self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {self.max_steps}")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a search found: ``chosen`` is the step that healed, if one did; ``trace`` is sorted by s."""

    status: Status
    trace: list[Step]
    chosen: Step | None


def alpha_at(retain: Importances, forget: Importances, s: float) -> float:
    """The threshold at ``s``: the p-th percentile of forget / retain, p = 100 - ln(1 + 100 s) (Eq. 7, FACTS 2 and 3).

    0/0 and infinite ratios are left out of the percentile.
    """
    if not retain:
        raise ValueError("retain is empty: importances of at least one parameter are needed")
    return Ranking(flat_ratios([(retained, forgotten) for _, retained, forgotten in joined(retain, forget)])).alpha(s)


def search(
    model: nn.Module,
    retain: Importances,
    forget: Importances,
    look: Callable[[], Look],
    *,
    before: Look,
    share: float,
    settings: PTN,
) -> Outcome:
    """Search on ``model``, which is used up: its weights are left at the last place looked at.

    ``look()`` tells what the model does as it stands, ``before`` what it did at the start; ``share`` is |S_f| / |S_tr|.
    """
    return walked(steps_of(model, retain, forget, look), before=before, share=share, settings=settings)


def steps_of(
    model: nn.Module, retain: Importances, forget: Importances, look: Callable[[], Look]
) -> Callable[[float], Step]:
    """What ``model`` does at any s; it is dampened there and stays so until the next one is asked for."""
    cursor = Cursor(model, retain, forget, LAMBDA)

    def step_at(s: float) -> Step:
        alpha = cursor.ranking.alpha(s)
        selected = cursor.move_to(alpha)
        return Step(s=s, alpha=alpha, selected=selected, **look()._asdict())

    return step_at


def walked(step_at: Callable[[float], Step], *, before: Look, share: float, settings: PTN) -> Outcome:
    """Alg. 1 over the steps that ``step_at`` tells for each s: where to look next, and where to stop."""
    threshold = settings.rho * before.known_accuracy + 1e-9  # 7/50 is to count as 0.2 of 35/50, whatever floats say
    trace: dict[int, Step] = {}

    def healed(k: int) -> bool:
        trace[k] = step_at(min(settings.start * share * settings.step**k, LARGEST_S))
        return settings.stop == "known" and trace[k].known_accuracy <= threshold

    def lost(step: Step) -> float:
        if before.trusted_accuracy is None or step.trusted_accuracy is None:
            return 0.0
        return before.trusted_accuracy - step.trusted_accuracy

    allowed = 1.0 if settings.guard is None else settings.guard / 100 + 1e-9
    farthest = FAR if settings.stop == "trusted" else allowed

    def over(k: int) -> bool:
        return trace[k].alpha <= LAMBDA or lost(trace[k]) > farthest

    last = _last_index(settings, share)
    walk = _sequential if settings.strategy == "sequential" else _bisect
    found = walk(healed, over, last)
    steps = [trace[k] for k in sorted(trace)]
    chosen = None if found is None else trace[found]
    if settings.stop == "trusted":
        chosen = _best(steps, before, lambda step: lost(step) <= allowed)
    if chosen is not None and lost(chosen) <= allowed:
        return Outcome(status=Status.HEALED, trace=steps, chosen=chosen)
    if chosen is not None or (settings.guard is not None and lost(steps[-1]) > allowed):
        return Outcome(status=Status.GUARDED, trace=steps, chosen=None)
    return Outcome(status=Status.SATURATED if steps[-1].alpha <= LAMBDA else Status.EXHAUSTED, trace=steps, chosen=None)


def _best(steps: Sequence[Step], before: Look, allowed: Callable[[Step], bool]) -> Step | None:
    """The allowed step at which trusted accuracy minus the poisoned labels' probability is largest, if it does anything."""

    def worth(step: Step) -> float:
        assert step.trusted_accuracy is not None
        assert step.known_probability is not None
        return step.trusted_accuracy - step.known_probability

    best = max(filter(allowed, steps), key=worth, default=None)
    return best if best is not None and 2 * best.known_accuracy <= before.known_accuracy else None


def _last_index(settings: PTN, share: float) -> int:
    """The last k worth a look: there p has reached 0 and every weight is selected, or the steps are used up."""
    everything = math.ceil((math.log(LARGEST_S) - math.log(settings.start) - math.log(share)) / math.log(settings.step))
    return max(0, min(everything, settings.max_steps - 1))


def _sequential(healed: Callable[[int], bool], over: Callable[[int], bool], last: int) -> int | None:
    """The first healed k, looking at each in turn. Past saturation nothing changes any more, so stop there."""
    for k in range(last + 1):
        if healed(k):
            return k
        if over(k):
            return None
    return None


def _bisect(healed: Callable[[int], bool], over: Callable[[int], bool], last: int) -> int | None:
    """The first healed k where healing is monotone: look at 0, 1, 3, 7, ... until healed, then halve what is between."""
    low, high = -1, 0
    while not healed(high):
        if over(high) or high == last:
            return None
        low, high = high, min(2 * high + 1, last)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if healed(middle) else (middle, high)
    return high
