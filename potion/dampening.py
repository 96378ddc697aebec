"""Selecting weights that matter more to the poison than to the rest, and shrinking them: Eq. (2)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from potion.distributed import all_gathered, global_indices, is_sharded, local
from potion.patch import Change, Patch
from potion.types import Importances

__all__ = ["dampen", "factors", "joined"]


def joined(retain: Importances, forget: Importances) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Both importances of each parameter, joined by name."""
    if retain.keys() != forget.keys():
        odd = sorted(retain.keys() ^ forget.keys())
        raise ValueError(
            f"retain and forget importances must name the same parameters; {odd[0]!r} is only in one of them"
        )
    for name in retain:
        if retain[name].shape != forget[name].shape:
            shapes = tuple(retain[name].shape), tuple(forget[name].shape)
            raise ValueError(f"importances of {name!r} differ in shape: {shapes[0]} and {shapes[1]}")
        yield name, retain[name], forget[name]


def factors(ratio: Tensor, lam: float) -> Tensor:
    """Beta = min(lambda * retain / forget, 1): what a selected weight is multiplied by."""
    return (lam / ratio).clamp(max=1)


def dampen(model: nn.Module, retain: Importances, forget: Importances, alpha: float, *, lam: float = 1.0) -> Patch:
    r"""The repair at threshold ``alpha``, as a patch; ``model`` itself is not changed.

    .. math:: \theta_i' = \min(\lambda\, []_{tr,i} / []_{f,i},\; 1)\; \theta_i
        \quad\text{where}\quad []_{f,i} > \alpha\, []_{tr,i} \qquad\text{Eq. (2), FACTS 5}

    Weights are compared by their ratio, which the search ranks too, so that both select the same weights to the last
    bit. A weight that only the poison uses (retain 0) is always selected and becomes 0; one that neither uses never is.
    """
    alpha, lam = float(alpha), float(lam)
    if math.isnan(alpha) or alpha < 0:
        raise ValueError(f"alpha must be a number of at least 0, got {alpha}")
    if not (math.isfinite(lam) and lam > 0):
        raise ValueError(f"lam must be positive, got {lam}")
    sharded = is_sharded(model)
    parameters = dict(model.named_parameters())
    changes = {}
    for name, retained, forgotten in joined(retain, forget):
        if name not in parameters or local(parameters[name]).shape != retained.shape:
            raise ValueError(f"the importances are of another model: it has no parameter {name!r} of that shape")
        flat = (forgotten / retained.to(forgotten.device)).flatten()
        indices = torch.nonzero(flat > alpha).flatten()
        if len(indices):
            old = local(parameters[name]).flatten()[indices.to(parameters[name].device)]
            places = global_indices(parameters[name], indices)
            changes[name] = Change(places.cpu(), old.cpu(), factors(flat[indices], lam).cpu())
    if sharded:
        changes = _together(all_gathered(changes), list(parameters))
    return Patch.between(model, changes, alpha=alpha, lam=lam)


def _together(pieces: list[dict[str, Change]], names: list[str]) -> dict[str, Change]:
    """The changes of all processes, in the order in which one process would have made them."""
    together = {}
    for name in names:
        mine = [piece[name] for piece in pieces if name in piece]
        if mine:
            joint = Change(*(torch.cat(parts) for parts in zip(*mine, strict=True)))
            order = joint.indices.argsort()
            together[name] = Change(*(part[order] for part in joint))
    return together
