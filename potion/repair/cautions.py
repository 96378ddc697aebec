"""What somebody should know before they trust a repair, in plain words."""

from __future__ import annotations

from typing import Any, Final

from potion.repair.case import Case
from potion.result import HealResult

__all__ = ["cautions"]

FEW_BATCHES: Final = 24
"""Importances are means over batches; of fewer they are rough (docs/speed.md)."""


def cautions(case: Case, result: HealResult, scores: dict[str, Any] | None) -> list[str]:
    """Sentences for the page and the terminal; none where all is as it should be."""
    found: list[str] = []
    known, samples, size = result.known, len(case.train), case.settings.batch_size
    dampened = result.treatment is None and bool(result.trace)
    if dampened and known == 1:
        found.append(
            "Only one poisoned sample was known. Dampening heals partly and unreliably from one; --method antidote is made "
            "for it."
        )
    if 0 < result.known_accuracy < 0.9:
        found.append(
            f"Only {result.known_accuracy:.0%} of the known samples got their label from the model before. The others "
            "may not be poison, or may reach the model otherwise than in training (--size, --mean, --std)."
        )
    if dampened and samples < FEW_BATCHES * size:
        found.append(
            f"The data make only {-(-samples // size)} batches of {size}, and importances want {FEW_BATCHES}: a smaller "
            "--batch-size may heal better."
        )
    if scores is None:
        found.append(
            "Nothing was measured on test images: --clean and --triggered say what the repair costs and brings."
        )
    return found
