"""What somebody should know before they heal, and before they trust a repair, in plain words."""

from __future__ import annotations

from typing import Any, Final

from torch import nn

from potion.repair.case import Case
from potion.result import HealResult

__all__ = ["beforehand", "cautions"]

FEW_BATCHES: Final = 24
"""Importances are means over batches; of fewer they are rough (docs/speed.md)."""
OBEYING: Final = 0.9
"""Of known poison so many samples should obey: the model learned them."""
FITTING: Final = 0.5
"""Of the other samples it was trained on a model should know so many."""
MOST: Final = 0.5
"""If more of the data are poison, what a model should keep cannot be told from the rest."""
COSTLY: Final = 5.0
"""So many points of clean accuracy are more than a repair should cost."""


def beforehand(case: Case, obeying: float) -> list[str]:
    """Sentences about what the model makes of the data, of whose known samples the share ``obeying`` get their label."""
    found: list[str] = []
    if obeying < OBEYING:
        share, they = (f"Only {obeying:.0%}", "The others") if obeying else ("None", "They")
        found.append(
            f"{share} of the known samples get their label from the model. {they} may not be poison, or may reach the model "
            "otherwise than in training (--size, --mean, --std)."
        )
    if len(case.known) > MOST * len(case.train):
        found.append(
            f"{len(case.known):,} of the {len(case.train):,} samples are named as poison: the rest is little to tell what "
            "the model should keep."
        )
    fitting = case.fitting()
    if fitting is not None and fitting < FITTING:
        found.append(
            f"The model gives only {fitting:.1%} of the samples with other labels the label that they have in the data. If "
            "it should know them, its classes are in another order than the data's (folders are numbered in the order of "
            "their names as text: 10 comes before 2), or images reach it otherwise than in training (--size, --mean, --std)."
        )
    if found and not case.own_weights:
        found.append(f"No --weights were given: the model is as {case.settings.model} makes it.")
    return found


def cautions(case: Case, result: HealResult, scores: dict[str, Any] | None) -> list[str]:
    """Sentences for the page and the terminal; none where all is as it should be."""
    found: list[str] = []
    known, samples, size = result.known, len(case.train), case.settings.batch_size
    dampened = result.treatment is None and bool(result.trace)
    if dampened and known == 1 and case.settings.method != "antidote":
        found.append(
            "Only one poisoned sample was known. Dampening heals partly and unreliably from one; --method antidote is made "
            "for it."
        )
    found += beforehand(case, result.known_accuracy)
    if dampened and samples < FEW_BATCHES * size:
        found.append(
            f"The data make only {-(-samples // size)} batches of {size}, and importances want {FEW_BATCHES}: a smaller "
            "--batch-size may heal better."
        )
    if scores is None:
        found.append(
            "Nothing was measured on test images: --clean and --triggered say what the repair costs and brings."
        )
        found += _forgotten(case, result.model.to(case.device))
    return found + _cost(scores, dampened=dampened)


def _forgotten(case: Case, repaired: nn.Module) -> list[str]:
    """Whether the repaired model still knows what it was trained on; it says less than test images, but they are missing."""
    before, after = case.fitting(), case.fitting(repaired)
    if before is None or after is None or 100 * (before - after) <= COSTLY:
        return []
    return [
        f"Of the training samples with other labels the model gave {before:.1%} their label, the repaired one gives "
        f"{after:.1%}: it lost more than the trigger."
    ]


def _cost(scores: dict[str, Any] | None, *, dampened: bool) -> list[str]:
    """Whether clean accuracy fell by more than a repair should cost."""
    before, after = (
        None if scores is None else (scores[when] or {}).get("clean_accuracy") for when in ("before", "after")
    )
    if before is None or after is None or before - after <= COSTLY:
        return []
    why = "Samples that are named as poison and are none do that"
    if dampened:
        why += ", or a search that goes too far: potion heal --from, with a higher --rho, takes another point of it"
    return [f"Accuracy on clean images fell from {before:.1f} to {after:.1f} %. {why}."]
