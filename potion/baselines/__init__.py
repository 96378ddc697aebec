"""Every method that the benchmark compares, behind one signature: ``METHODS[name](problem) -> Repair``."""

from __future__ import annotations

from typing import Final

from potion.baselines.antidote import antidote
from potion.baselines.assd import assd
from potion.baselines.bad_teacher import bad_teacher
from potion.baselines.finetune import finetune
from potion.baselines.none import none
from potion.baselines.problem import Method, Problem, Repair
from potion.baselines.ptn import PTN_METHODS
from potion.baselines.retrain import retrain
from potion.baselines.scrub import scrub
from potion.baselines.ssd_grid import ssd_grid

__all__ = ["METHODS", "Method", "Problem", "Repair"]

METHODS: Final[dict[str, Method]] = {
    "none": none,
    "retrain": retrain,
    "finetune": finetune,
    "ssd_grid": ssd_grid,
    "assd": assd,
    "scrub": scrub,
    "bad_teacher": bad_teacher,
    **PTN_METHODS,
    "antidote": antidote,
}
