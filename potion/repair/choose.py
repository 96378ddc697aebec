"""Another point of a finished search, from what it left: no data, no model, seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from torch import nn

from potion.checkpoint import Checkpoint, Names, bare, read_checkpoint
from potion.dampening import dampen
from potion.fingerprint import fingerprint
from potion.patch import Patch
from potion.repair.folder import IMPORTANCES, ORIGINAL, RESULT, link, load_importances
from potion.repair.healing import write_repair
from potion.repair.patching import layers, of_file
from potion.result import HealResult
from potion.search import PTN
from potion.types import Status, Step

__all__ = ["Choice", "choose"]

NEEDED: Final = {
    "method", "known", "status", "summary", "known_accuracy", "search", "trace", "timings", "inputs", "scores", "before",
    "weights_file", "names", "provenance",
}  # fmt: skip


class Choice:
    """The heal in ``source`` with another ``rho``, ready to be written."""

    def __init__(
        self,
        source: Path,
        record: dict[str, Any],
        checkpoint: Checkpoint,
        names: Names,
        patch: Patch,
        weights: nn.Module,
    ) -> None:
        self.source, self.record, self.checkpoint, self.names = source, record, checkpoint, names
        self.patch, self.weights = patch, weights

    def write(self, folder: Path) -> None:
        """The files of a heal, with those that yet another choice needs, so that it can be made from here too."""
        for name in (IMPORTANCES, ORIGINAL):
            if (self.source / name).is_file():
                link(self.source / name, folder / name)
        write_repair(folder, self.record, self.checkpoint, self.names, self.patch, self.weights)


def choose(source: Path, rho: float, weights: str | None = None) -> Choice:
    """The first point of the search in ``source`` at which the known poison keeps at most ``rho`` of its accuracy.

    ``weights`` says where the original ones lie now, if not where they did.
    """
    if not 0 <= rho < 1:
        raise ValueError(
            f"--rho {rho:g}: give the share of the known poison's accuracy to stop at, 0 or more and below 1"
        )
    record = _record(source)
    if not record["trace"] and "treatment" in record:
        raise ValueError(
            f"--from {source}: the antidote does not search, so there is no other point to choose; --from is for heals "
            "with xlf, lf or ssd"
        )
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
    trace, status = [Step(**point) for point in record["trace"]], Status(record["status"])
    goal = rho * record["known_accuracy"] + 1e-9  # as the search itself compares
    lowest = min(step.known_accuracy for step in trace)
    if status is Status.HEALED and lowest > goal:
        raise ValueError(
            f"--rho {rho:g} asks for {rho * record['known_accuracy']:.1%} on the known poison, but the search in {source} "
            f"stopped at {lowest:.1%} and never looked further; run it again on the data with --rho {rho:g}"
        )
    step = _stop(trace, goal, record.get("trusted_accuracy"), search.guard)
    if step is not None:
        status = Status.HEALED
    elif status is Status.HEALED:  # it went far enough, so it is the guard that does not allow it
        status = Status.GUARDED
    changes = Patch.between(original, {}, method=record["method"])
    if step is not None:
        retain, forget = load_importances(source / IMPORTANCES)
        changes = dampen(original, retain, forget, step.alpha).with_metadata(
            method=record["method"], s=step.s, rho=rho, known=record["known"], versions=record["provenance"]["versions"]
        )
        changes = changes.with_metadata(weights=changes.count)
    patch, repaired = of_file(changes, checkpoint, names)
    result = HealResult(
        status=status,
        model=repaired,
        patch=patch,
        trace=trace,
        chosen=step,
        known_accuracy=record["known_accuracy"],
        method=record["method"],
        known=record["known"],
        search=search,
        retain={},
        forget={},
        timings=record["timings"],
        notes=record.get("notes", []),
        trusted_accuracy=record.get("trusted_accuracy"),
    )
    scores = record["scores"]
    changed = {
        **record,
        **result.to_dict(),
        "inputs": {**record["inputs"], "rho": search.rho},
        "layers": layers(patch),
        "weights_file": weights or record["weights_file"],
        # There is no data here to measure the new repair on.
        "scores": None if scores is None else {**scores, "after": scores["before"] if step is None else None},
    }
    return Choice(source, changed, checkpoint, names, patch, repaired)


def _stop(trace: list[Step], goal: float, trusted: float | None, guard: float | None) -> Step | None:
    """The first point at which the known poison is at the ``goal``, unless the guard stops the search there or before.

    Records of earlier versions do not say how many trusted samples were right at the start: the first point is near it.
    """
    if trusted is None:
        trusted = trace[0].trusted_accuracy
    for step in trace:
        if guard is not None and _lost(step, trusted) > guard / 100 + 1e-9:  # as the search itself compares
            return None
        if step.known_accuracy <= goal:
            return step
    return None


def _lost(step: Step, trusted: float | None) -> float:
    return 0.0 if trusted is None or step.trusted_accuracy is None else trusted - step.trusted_accuracy


def _original(source: Path, record: dict[str, Any], weights: str | None) -> Path:
    recorded = record["weights_file"]
    places = [Path(weights)] if weights else [source / ORIGINAL] if recorded is None else [Path(recorded)]
    if not places[0].is_file():
        raise FileNotFoundError(f"no weights at {places[0]}: say with --weights where the original ones lie now")
    return places[0]


def _record(source: Path) -> dict[str, Any]:
    try:
        record = json.loads((source / RESULT).read_text())
        if not record.keys() >= NEEDED:
            raise KeyError
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"--from {source}: no {RESULT} there; give the --out folder of an earlier heal"
        ) from None
    except (json.JSONDecodeError, KeyError, AttributeError):
        raise ValueError(f"--from {source}: {RESULT} there is not one that potion heal wrote") from None
    return record  # type: ignore[no-any-return]
