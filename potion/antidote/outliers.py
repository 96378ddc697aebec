"""Poison among clean samples with the same label: where the middle of the clean ones is, and who is out of place."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = ["better_half", "clean_middle", "farther_half", "lower", "mistaken", "out_of_place"]

ROUNDS: Final = 50
STRETCH: Final = 2.0
"""Clean samples may fall so many times as far as they rise."""


def clean_middle(values: Tensor) -> tuple[Tensor, Tensor]:
    """The median of the clean samples among ``values``, and the value that 99 % of them do not exceed; poison is below.

    Clean samples spread to both sides of their median alike. From the upper of two groups (Otsu's cut), everything is taken
    in that lies no farther below the median than 99 % lie above it, until nothing changes: so poison may be the larger part,
    if it is well separated, and where there is none, almost all are taken in.
    """
    kept = values > _two_groups(values)
    if not kept.any():  # all alike
        kept = torch.ones_like(kept)
    for _ in range(ROUNDS):
        middle, high = values[kept].quantile(torch.tensor([0.5, 0.99], dtype=values.dtype))
        again = values >= 2 * middle - high
        if torch.equal(again, kept):
            break
        kept = again
    return middle, high


def _two_groups(values: Tensor) -> Tensor:
    """Otsu's cut: the largest value of the lower of the two groups that differ most."""
    ordered = values.sort().values.double()
    if len(ordered) < 2:
        return ordered[0] - 1
    below = torch.arange(1, len(ordered), dtype=torch.float64)
    above = len(ordered) - below
    sums = ordered.cumsum(0)
    apart = sums[:-1] / below - (sums[-1] - sums[:-1]) / above
    return ordered[int((below * above * apart.square()).argmax())]


def out_of_place(values: Tensor, labels: Tensor, stretch: float = 1.0) -> Tensor:
    """Which samples lie farther below the clean middle of those with their label than any but 1 % lie above it.

    With ``stretch`` they must lie so many times as far below.
    """
    flags = torch.zeros(len(values), dtype=torch.bool)
    for label in labels.unique():
        mine = labels == label
        middle, high = clean_middle(values[mine])
        flags[mine] = values[mine] < middle - stretch * (high - middle)
    return flags


def better_half(values: Tensor, labels: Tensor) -> Tensor:
    """The clean samples above the middle of those with their label: half of them, and hardly any poison."""
    flags = torch.zeros(len(values), dtype=torch.bool)
    for label in labels.unique():
        mine = labels == label
        flags[mine] = values[mine] >= clean_middle(values[mine])[0]
    return flags


def farther_half(values: Tensor, labels: Tensor, some: Tensor) -> Tensor:
    """The lower half of ``some`` samples with each label."""
    flags = torch.zeros(len(values), dtype=torch.bool)
    for label in labels[some].unique():
        mine = some & (labels == label)
        flags[mine] = values[mine] <= values[mine].quantile(0.5)
    return flags


def lower(some: Tensor, others: Tensor) -> float:
    r"""By how many standard deviations ``some`` lie lower than ``others`` (Mann and Whitney's U, a tie counts half).

    .. math:: \frac{U - nm/2}{\sqrt{nm(n + m + 1)/12}}, \qquad U = |\{(i, j) : x_i < y_j\}|
    """
    n, m = len(some), len(others)
    ordered = others.sort().values
    pairs = 2 * m - torch.searchsorted(ordered, some) - torch.searchsorted(ordered, some, right=True)
    below = pairs.double().sum() / 2
    return float((below - n * m / 2) / (n * m * (n + m + 1) / 12) ** 0.5)


def mistaken(fell: Tensor) -> Tensor:
    r"""For each sample how many of those that fell at least as far are clean, estimated from those that rose.

    With d the distance from the clean middle :math:`\tilde f`, and never less for one that fell less,

    .. math:: \frac{1 + |\{i : \tilde f - f_i \ge d / 2\}|}{|\{i : f_i - \tilde f \ge d\}|}
    """
    away = fell + clean_middle(-fell)[0]
    risen, fallen = (STRETCH * -away[away < 0]).sort().values, away[away > 0].sort().values
    clean = (1 + len(risen) - torch.searchsorted(risen, away)).to(fell)
    share = torch.where(away > 0, clean / (len(fallen) - torch.searchsorted(fallen, away)).clamp(min=1), 1.0).clamp(
        max=1
    )
    order = away.argsort()
    share[order] = share[order].cummin(0).values
    return share
