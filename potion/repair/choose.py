"""Another point of a finished search, from what it left: no data, no model, seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from potion.checkpoint import Checkpoint, Names, bare, read_checkpoint
from potion.dampening import dampen
from potion.fingerprint import fingerprint
from potion.patch import Patch
from potion.repair.folder import IMPORTANCES, ORIGINAL, RESULT, load_importances
from potion.repair.healing import write_repair
from potion.repair.patching import layers, of_file
from potion.result import HealResult
from potion.search import PTN
from potion.types import Status, Step

__all__ = ["Choice", "choose"]


class Choice:
    """A saved heal with another ``rho``, ready to be written."""

    def __init__(
        self, record: dict[str, Any], checkpoint: Checkpoint, names: Names, patch: Patch, weights: nn.Module
    ) -> None:
        self.record, self.checkpoint, self.names = record, checkpoint, names
        self.patch, self.weights = patch, weights

    def write(self, folder: Path) -> None:
        """The files of a heal, but for the importances, which stay where they are."""
        write_repair(folder, self.record, self.checkpoint, self.names, self.patch, self.weights)


def choose(source: Path, rho: float, weights: str | None = None) -> Choice:
    """The first point of the search in ``source`` at which the known poison keeps at most ``rho`` of its accuracy.

    ``weights`` says where the original ones lie now, if not where they did.
    """
    record = _record(source)
    if not record["trace"]:
        raise ValueError(f"--from {source}: {record['summary']} There is nothing to choose from")
    checkpoint = read_checkpoint(_original(source, record, weights))
    names: Names = record["names"]
    if missing := [key for keys in names.values() for key in keys if key not in checkpoint.state]:
        raise ValueError(f"{checkpoint.path} lacks {missing[0]}: these are not the weights that were healed")
    original = bare(checkpoint.tensors(names))
    if fingerprint(original) != record["before"]:
        raise ValueError(f"{checkpoint.path} has changed since: these are not the weights that were healed")
    search = PTN(**{**record["search"], "rho": rho})
    step = _first(record, search.rho)
    if step is None and record["status"] == Status.HEALED.value:
        lowest = min(point["known_accuracy"] for point in record["trace"])
        raise ValueError(
            f"--rho {rho:g} asks for {rho * record['known_accuracy']:.1%} on the known poison, but the search in {source} "
            f"stopped at {lowest:.1%} and never looked further; run it again on the data with --rho {rho:g}"
        )
    changes = Patch.between(original, {}, method=record["method"])
    if step is not None:
        retain, forget = load_importances(source / IMPORTANCES)
        changes = dampen(original, retain, forget, step.alpha).with_metadata(
            method=record["method"], s=step.s, rho=rho, known=record["known"], versions=record["provenance"]["versions"]
        )
        changes = changes.with_metadata(weights=changes.count)
    patch, repaired = of_file(changes, checkpoint, names)
    result = HealResult(
        status=Status(record["status"]) if step is None else Status.HEALED,
        model=repaired,
        patch=patch,
        trace=[Step(**point) for point in record["trace"]],
        chosen=step,
        known_accuracy=record["known_accuracy"],
        method=record["method"],
        known=record["known"],
        search=search,
        retain={},
        forget={},
        timings=record["timings"],
    )
    scores = record["scores"]
    changed = {
        **record,
        **result.to_dict(),
        "inputs": {**record["inputs"], "rho": search.rho},
        "layers": layers(patch),
        # There is no data here to measure the new repair on.
        "scores": None if scores is None else {**scores, "after": scores["before"] if step is None else None},
    }
    return Choice(changed, checkpoint, names, patch, repaired)


def _first(record: dict[str, Any], rho: float) -> Step | None:
    threshold = rho * record["known_accuracy"] + 1e-9  # as the search itself compares
    return next((Step(**point) for point in record["trace"] if point["known_accuracy"] <= threshold), None)


def _original(source: Path, record: dict[str, Any], weights: str | None) -> Path:
    recorded = record["weights_file"]
    places = [Path(weights)] if weights else [source / ORIGINAL] if recorded is None else [Path(recorded)]
    if not places[0].is_file():
        raise FileNotFoundError(f"no weights at {places[0]}: say with --weights where the original ones lie now")
    return places[0]


def _record(source: Path) -> dict[str, Any]:
    try:
        record = json.loads((source / RESULT).read_text())
        if not {"names", "before", "weights_file"} <= record.keys():
            raise KeyError
    except FileNotFoundError:
        raise FileNotFoundError(
            f"--from {source}: no {RESULT} there; give the --out folder of an earlier heal"
        ) from None
    except (json.JSONDecodeError, KeyError, AttributeError):
        raise ValueError(f"--from {source}: {RESULT} there is not one that potion heal wrote") from None
    return record  # type: ignore[no-any-return]
