"""Potion repairs trained image classifiers that learned a backdoor, when only some of the poison is known."""

from potion.antidote import Antidote
from potion.dampening import dampen
from potion.discover import discover
from potion.heal import heal
from potion.importance import importances
from potion.patch import Patch
from potion.result import HealResult
from potion.search import PTN, alpha_at
from potion.types import Status, Step
from potion.version import __version__

__all__ = [
    "PTN", "Antidote", "HealResult", "Patch", "Status", "Step",
    "alpha_at", "dampen", "discover", "heal", "importances", "__version__",
]  # fmt: skip
