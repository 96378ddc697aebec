"""One heal from files to files: potion.heal, the scores around it, and what is left in the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from potion.checkpoint import Checkpoint, Names, fill
from potion.distributed import world
from potion.files import write_json
from potion.fingerprint import stored_tensors
from potion.heal import heal
from potion.patch import Patch
from potion.provenance import machine
from potion.repair.case import Case
from potion.repair.cautions import cautions
from potion.repair.folder import IMPORTANCES, ORIGINAL, PATCH, RESULT, save_importances
from potion.repair.patching import layers, of_file
from potion.repair.processes import explained
from potion.repair.scores import counts, curve, score
from potion.repair.suspects import discovered
from potion.repair.thumbnails import thumbnails
from potion.result import HealResult
from potion.types import Status

__all__ = ["Healing", "heal_case", "write_repair"]


class Healing:
    """A finished heal: its result, the patch in terms of the file, the weights to write, and the record of it all."""

    def __init__(self, case: Case, result: HealResult, before: dict[str, Any] | None) -> None:
        self.case, self.result = case, result
        self.patch, self.weights = of_file(result.patch, case.checkpoint, case.names)
        # What is written is what is scored: a file in half precision rounds the repair.
        fill(result.model, stored_tensors(self.weights))
        after = score(case, result.model.to(case.device)) if self.healed else before
        self.record = self._record(None if before is None else {"before": before, "after": after, **counts(case)})

    @property
    def healed(self) -> bool:
        return self.result.status is Status.HEALED

    def write(self, folder: Path) -> None:
        """All files of the heal; weights and patch only where there is a repair."""
        case, result = self.case, self.result
        if not case.own_weights:
            case.checkpoint.write(case.checkpoint.tensors(case.names), case.names, folder / ORIGINAL)
        if result.retain:
            save_importances(folder / IMPORTANCES, result.retain, result.forget)
        write_repair(folder, self.record, case.checkpoint, case.names, self.patch, self.weights)

    def _record(self, scores: dict[str, Any] | None) -> dict[str, Any]:
        case, labels = self.case, self.case.train.labels
        return {
            **self.result.to_dict(),
            "warnings": cautions(case, self.result, scores),
            "inputs": case.settings.to_dict(),
            "classes": list(case.train.classes),
            "samples": len(case.train),
            "weights": sum(p.numel() for p in case.model.parameters()),
            "known_samples": [
                {
                    "index": index,
                    "name": None if case.known_names is None else case.known_names[place],
                    "class": case.train.classes[int(labels[index])],
                }
                for place, index in enumerate(case.known)
            ],
            "pictures": thumbnails(case, self.result.treatment),
            "suspects": self._suspects(),
            "layers": layers(self.patch),
            "scores": scores,
            "curve": curve(case, self.result),
            "seconds": sum(self.result.timings.values()),
            "before": self.patch.before,
            "weights_file": str(case.checkpoint.path) if case.own_weights else None,
            "names": case.names,
            "provenance": {**machine(case.device), "seed": case.settings.seed, "processes": world().size},
        }

    def _suspects(self) -> list[dict[str, Any]]:
        """The other samples that are taken to be poison, where an antidote has told what it does to them."""
        if not self.healed or self.result.treatment is None:
            return []
        suspects, names, classes = discovered(self.case, self.result), self.case.files, self.case.train.classes
        return [
            {
                "index": suspect.index,
                "file": None if names is None else names[suspect.index],
                "label": classes[suspect.label],
                "believed": classes[suspect.believed],
                "score": suspect.score,
            }
            for suspect in suspects[: suspects.cut]
        ]


@explained()
def heal_case(case: Case, *, progress: bool) -> Healing:
    """Heal, and score before and after."""
    settings = case.settings
    before = score(case, case.model)
    result = heal(
        case.model,
        case.train,
        case.known,
        settings.method,
        settings.search(),
        batch_size=settings.batch_size,
        device=case.device,
        seed=settings.seed,
        progress=progress,
        unaugmented=case.train.plain(),
        retain_share=settings.retain_share,
        workers=settings.workers,
    )
    return Healing(case, result, before)


def write_repair(
    folder: Path, record: dict[str, Any], checkpoint: Checkpoint, names: Names, patch: Patch, weights: nn.Module
) -> None:
    """The record and, where it healed, the patch and the weights in their file's own format."""
    if record["status"] == Status.HEALED.value:
        checkpoint.write(stored_tensors(weights), names, folder / f"healed{checkpoint.path.suffix}")
        patch.save(folder / PATCH)
    write_json(folder / RESULT, record)
