"""A patch and a file of weights: the repair in the file's own types and names, found again without the model."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from potion.checkpoint import Checkpoint, Names, bare
from potion.fingerprint import fingerprint, stored_tensors
from potion.patch import Change, Patch

__all__ = ["compared", "layers", "matching", "of_file"]

NOTHING: Final = Change(torch.empty(0, dtype=torch.int64), torch.empty(0), torch.empty(0))


def of_file(patch: Patch, checkpoint: Checkpoint, names: Names) -> tuple[Patch, nn.Module]:
    """The same repair of the weights as the file holds them, perhaps in half precision; and these weights, repaired."""
    weights = bare(checkpoint.tensors(names))
    tensors = stored_tensors(weights)
    changes = {
        name: Change(change.indices, tensors[name].flatten()[change.indices], change.factors)
        for name, change in patch.changes.items()
    }
    more: dict[str, Any] = {"sizes": {name: tensors[name].numel() for name in changes}}
    if not any(checkpoint.below(prefix) == names for prefix in checkpoint.prefixes_of(next(iter(names)))):
        more["names"] = names  # they cannot be told from the file alone: other things lie beside them, or some are tied
    made = Patch.between(weights, changes, **patch.metadata, **more)
    made.write(weights)
    return made, weights


def matching(patch: Patch, checkpoint: Checkpoint) -> tuple[Names, nn.Module]:
    """The weights in the file that the patch speaks of, and their names; the patch itself still checks whether it fits."""
    if not patch.changes:
        raise ValueError("this patch is empty: there is nothing to apply or revert")
    recorded: Names | None = patch.metadata.get("names")
    choices = (
        [recorded] if recorded and all(key in checkpoint.state for keys in recorded.values() for key in keys) else []
    )
    choices += [checkpoint.below(prefix) for prefix in checkpoint.prefixes_of(next(iter(patch.changes)))]
    if not choices:
        raise ValueError(
            f"{checkpoint.path} has no weights {next(iter(patch.changes))!r}: the patch is of another model"
        )
    for names in choices:
        weights = bare(checkpoint.tensors(names))
        if fingerprint(weights) in (patch.before, patch.after):
            break
    return names, weights


def layers(patch: Patch) -> list[dict[str, Any]]:
    """What the patch does to each parameter: how many weights, out of how many where that is known, and how strongly."""
    sizes = patch.metadata.get("sizes", {})
    return [
        {
            "name": name,
            "weights": sizes.get(name),
            "changed": len(change.indices),
            "mean_factor": float(change.factors.double().mean()),
            "least_factor": float(change.factors.min()),
        }
        for name, change in patch.changes.items()
    ]


def compared(one: Patch, two: Patch) -> list[dict[str, Any]]:
    """For each parameter that either changes: how many weights both do, how many one alone, and how far apart."""
    rows = []
    for name in dict.fromkeys((*one.changes, *two.changes)):
        first, second = (patch.changes.get(name, NOTHING) for patch in (one, two))
        apart = _apart(first, second)
        rows.append(
            {
                "name": name,
                "both": len(apart),
                "first_only": len(first.indices) - len(apart),
                "second_only": len(second.indices) - len(apart),
                "factors_apart": float(apart.max()) if len(apart) else None,
            }
        )
    return rows


def _apart(one: Change, two: Change) -> Tensor:
    """How far the factors of two changes lie apart, for each of the weights that both make."""
    if not len(two.indices):
        return one.factors[:0]
    ordered, order = two.indices.sort()
    places = torch.searchsorted(ordered, one.indices).clamp(max=len(ordered) - 1)
    both = ordered[places] == one.indices
    return (one.factors[both].double() - two.factors[order[places[both]]].double()).abs()
