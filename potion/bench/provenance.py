"""Where a result of the benchmark comes from: the machine, the seed, the suite."""

from __future__ import annotations

from typing import Any

import torch

from potion.bench.plan import Run
from potion.provenance import machine

__all__ = ["provenance"]


def provenance(run: Run, device: torch.device) -> dict[str, Any]:
    """Where and when, with which seed, out of which suite."""
    return {**machine(device), "seed": run.seed, "suite": run.suite_digest}
