"""The repair as a small reversible file: which weights, what they were, what they are multiplied by."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from potion.distributed import local, own_part, refreshed, whole
from potion.files import replacing
from potion.fingerprint import digest_of, fingerprint, stored_tensors
from potion.stale import forget_computed

__all__ = ["Change", "Patch", "movable"]

FORMAT: Final = "potion-patch/1"


def movable(weights: Tensor) -> Tensor:
    """Which weights a factor can move: not those that are 0, or so near to it that the factor would be infinite."""
    return weights.float().abs() >= torch.finfo(torch.float32).tiny  # in half precision the limit itself would be 0


class Change(NamedTuple):
    """What happens to one parameter: ``new = (old * factors)`` at the flat ``indices``."""

    indices: Tensor
    old: Tensor
    factors: Tensor

    def new(self) -> Tensor:
        """The values after the repair, in the parameter's own type."""
        return (self.old.to(self.factors.dtype) * self.factors).to(self.old.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch:
    """A repair that can be reviewed, applied, undone and stored. All tensors live on the CPU.

    ``before`` and ``after`` are fingerprints of the model, so a patch can neither be applied to another model nor twice.
    """

    changes: Mapping[str, Change]
    before: str
    after: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def between(cls, model: nn.Module, changes: Mapping[str, Change], **metadata: Any) -> Patch:
        """The patch that makes ``changes`` to ``model``, which stays as it is."""
        tensors = stored_tensors(model)
        before = digest_of(tensors.items())
        after = digest_of(_patched(tensors, changes, {name: change.new() for name, change in changes.items()}))
        return cls(changes=changes, before=before, after=after, metadata=metadata)

    @classmethod
    def towards(cls, model: nn.Module, other: nn.Module, **metadata: Any) -> Patch:
        """The patch that takes ``model`` to the weights of ``other``, as near as factors do: a weight that is 0 stays 0."""
        theirs, changes = dict(other.named_parameters()), {}
        for name, p in model.named_parameters():
            old, new = p.detach().flatten().cpu(), theirs[name].detach().flatten().cpu()
            indices = torch.nonzero((new != old) & movable(old)).flatten()
            if len(indices):
                factors = new[indices].double() / old[indices].double()
                changes[name] = Change(
                    indices, old[indices], factors.to(old.dtype if old.dtype.itemsize > 4 else torch.float32)
                )
        return cls.between(model, changes, **metadata)

    def with_metadata(self, **more: Any) -> Patch:
        """The same patch, knowing more about where it comes from."""
        return replace(self, metadata={**self.metadata, **more})

    @property
    def count(self) -> int:
        """How many weights the patch holds."""
        return sum(len(change.indices) for change in self.changes.values())

    def apply(self, model: nn.Module) -> None:
        """Repair ``model`` in place. Any other model than the one the patch was made for is refused."""
        self._expect(model, self.before, "apply")
        self._write(model, {name: change.new() for name, change in self.changes.items()}, self.after)

    def write(self, model: nn.Module) -> None:
        """:meth:`apply` without a check, for those who have just made the patch from this model."""
        self._put(model, {name: change.new() for name, change in self.changes.items()})

    def revert(self, model: nn.Module) -> None:
        """Undo :meth:`apply`, bit by bit."""
        self._expect(model, self.after, "revert")
        self._write(model, {name: change.old for name, change in self.changes.items()}, self.before)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file; a file of that name is replaced only once the new one is complete."""
        tensors = {
            f"{name}.{part}": tensor.contiguous()
            for name, change in self.changes.items()
            for part, tensor in change._asdict().items()
        }
        header = {"format": FORMAT, "before": self.before, "after": self.after, "metadata": json.dumps(self.metadata)}
        replacing(path, lambda partial: save_file(tensors, partial, metadata=header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Patch:
        """Read what :meth:`save` wrote; a truncated or foreign file is a ``ValueError``."""
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a complete safetensors file: {error}") from error
        if header.get("format") != FORMAT:
            raise ValueError(f"{path} is not a potion patch (format {header.get('format')!r}, expected {FORMAT!r})")
        names = dict.fromkeys(key.rpartition(".")[0] for key in tensors)
        try:
            changes = {name: Change(*(tensors[f"{name}.{part}"] for part in Change._fields)) for name in names}
            metadata = json.loads(header["metadata"])
            before, after = header["before"], header["after"]
        except (KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is a damaged potion patch: {error} is missing or unreadable") from error
        for name, change in changes.items():
            if any(part.dim() != 1 or len(part) != change.indices.numel() or not len(part) for part in change):
                raise ValueError(f"{path} is a damaged potion patch: the parts of {name!r} are not lists of one length")
            if change.indices.dtype != torch.int64 or int(change.indices.min()) < 0:
                raise ValueError(f"{path} is a damaged potion patch: the indices of {name!r} are not indices")
        return cls(changes=changes, before=before, after=after, metadata=metadata)

    def _expect(self, model: nn.Module, wanted: str, verb: str) -> None:
        found = fingerprint(model)
        if found == wanted:
            return
        if found in (self.before, self.after):
            raise ValueError(f"cannot {verb} this patch: that has been done already")
        raise ValueError(
            f"cannot {verb} this patch: it belongs to a model with fingerprint {wanted[:12]}, this one has {found[:12]}"
        )

    def _write(self, model: nn.Module, values: Mapping[str, Tensor], wanted: str) -> None:
        """Put ``values`` in place, but only where all of them fit and the model becomes the one that is wanted."""
        tensors = stored_tensors(model)
        for name, change in self.changes.items():
            if name not in tensors or int(change.indices.max()) >= tensors[name].numel():
                raise ValueError(f"this patch is damaged: the model has no weight that it names in {name!r}")
        if digest_of(_patched(tensors, self.changes, values)) != wanted:
            raise ValueError("this patch is damaged: its values do not lead to the model it was made for")
        self._put(model, values)

    def _put(self, model: nn.Module, values: Mapping[str, Tensor]) -> None:
        tensors = stored_tensors(model)
        with torch.no_grad():
            for name, change in self.changes.items():
                _put(tensors[name], change.indices, values[name])
        refreshed(model)
        forget_computed(model)
        torch.clear_autocast_cache()  # it may hold casts of the old weights


def _patched(
    tensors: Mapping[str, Tensor], changes: Mapping[str, Change], values: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The tensors with ``values`` in the place of those that change, one after the other: never a second model."""
    for name, tensor in tensors.items():
        if name in changes:
            flat = whole(tensor).flatten().clone()
            flat[changes[name].indices.to(flat.device)] = values[name].to(flat.device)
            yield name, flat.view(tensor.shape)
        else:
            yield name, tensor


def _put(tensor: Tensor, indices: Tensor, values: Tensor) -> None:
    """Write ``values`` at the flat ``indices``, which count in logical, not memory order; of a shard, what is here."""
    piece = local(tensor)
    mine, places = own_part(tensor, indices)
    where = torch.unravel_index(places.to(piece.device), piece.shape)
    piece[where] = values[mine].to(piece.device).reshape(where[0].shape if where else ())
