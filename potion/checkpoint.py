"""Somebody's weights: read without running anything, fitted to a model by name, written back in their own format."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from potion.files import replacing
from potion.fingerprint import stored_tensors

__all__ = ["Checkpoint", "Names", "bare", "fill", "read_checkpoint"]

CONTAINERS: Final = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
"""Where training scripts put the weights among other things."""

Names = dict[str, list[str]]
"""For each of a model's tensors, tied ones once, the keys that hold it in a file."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A file with weights. ``inside`` are the keys that lead to them, ``content`` is all of the file."""

    path: Path
    state: Mapping[str, Tensor]
    content: Any
    inside: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None

    @classmethod
    def of(cls, model: nn.Module, path: Path) -> Checkpoint:
        """What a safetensors file of the model would hold: weights that came without a file."""
        state = {name: tensor.cpu() for name, tensor in stored_tensors(model).items()}
        return cls(path=path.with_suffix(".safetensors"), state=state, content=state)

    def fit(self, model: nn.Module) -> Names:
        """Which key belongs to which tensor of the model, all of it; a ``ValueError`` says what does not fit.

        Prefixes that parallel, compiled and Lightning models have are found by themselves, on either side. Keys
        outside of the prefix (a loss, an average of the weights) are left alone.
        """
        wanted, aliases = stored_tensors(model), _aliases(model)
        prefix, stripped = self._prefixes(wanted, aliases)
        names = {}
        for name, tensor in wanted.items():
            names[name] = self._keys(name, aliases, prefix, stripped)
            for key in names[name]:
                if self.state[key].shape != tensor.shape:
                    raise ValueError(
                        f"{self.path} does not fit the model: {key} has the shape {tuple(self.state[key].shape)}, the model "
                        f"wants {tuple(tensor.shape)}; check the arguments of the model, as the number of classes"
                    )
        return names

    def tensors(self, names: Names) -> dict[str, Tensor]:
        """The weights by the model's names, in the file's own types."""
        return {name: self.state[keys[0]] for name, keys in names.items()}

    def write(self, tensors: Mapping[str, Tensor], names: Names, path: str | os.PathLike[str]) -> None:
        """The same file with other values: same format, keys and types, and everything else as it was."""
        new = {key: tensors[name].detach() for name, keys in names.items() for key in keys}
        if self.path.suffix == ".safetensors":
            state = {key: new.get(key, tensor).clone().contiguous() for key, tensor in self.state.items()}
            replacing(path, lambda partial: save_file(state, partial, metadata=dict(self.metadata or {}) or None))
        else:
            content = _replaced(self.content, self.inside, new)
            replacing(path, lambda partial: torch.save(content, partial))

    def below(self, prefix: str) -> Names:
        """All keys with the prefix, taken for a whole model's."""
        return {key[len(prefix) :]: [key] for key in self.state if key.startswith(prefix)}

    def prefixes_of(self, name: str) -> list[str]:
        """What stands before a model's ``name`` wherever the file has it, shortest first."""
        found = {key[: -len(name)] for key in self.state if key == name or key.endswith("." + name)}
        return sorted(found, key=len)

    def _keys(self, name: str, aliases: Mapping[str, list[str]], prefix: str, stripped: str) -> list[str]:
        every = (prefix + each.removeprefix(stripped) for each in (name, *aliases.get(name, ())))
        return [key for key in every if key in self.state]

    def _prefixes(self, wanted: Mapping[str, Tensor], aliases: Mapping[str, list[str]]) -> tuple[str, str]:
        """What stands before all names in the file, and what before all in the model, such that the rest is the same."""
        every = {*wanted, *(alias for group in aliases.values() for alias in group)}
        first = next(iter(wanted))
        tries = [(prefix, "") for each in (first, *aliases.get(first, ())) for prefix in self.prefixes_of(each)]
        tries += [("", stripped) for stripped in _beginnings(first) if all(name.startswith(stripped) for name in every)]
        for prefix, stripped in tries:
            known = {prefix + name.removeprefix(stripped) for name in every}
            complete = all(self._keys(name, aliases, prefix, stripped) for name in wanted)
            if complete and all(key in known for key in self.state if key.startswith(prefix)):
                return prefix, stripped
        raise ValueError(self._misfit(list(wanted), every, [prefix for prefix, _ in tries] or [""]))

    def _misfit(self, wanted: list[str], every: Iterable[str], prefixes: list[str]) -> str:
        prefix = min(prefixes, key=lambda each: sum(each + name not in self.state for name in wanted))
        missing = [name for name in wanted if prefix + name not in self.state]
        known = {prefix + name for name in every}
        beyond = [key for key in self.state if key.startswith(prefix) and key not in known]
        hint = f" (names there begin with {prefix!r})" if prefix else ""
        for part in dict.fromkeys(each for name in wanted for each in _beginnings(name)):
            if all(part + key in wanted for key in self.state):
                hint = f"; it would fit the part of the model below {part!r}: load it there, and save the whole model"
        return (
            f"{self.path} does not fit the model: it lacks {_some(missing)}, and has {_some(beyond)} that the model "
            f"does not know{hint}"
        )


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """A ``.safetensors`` file, or a ``.pt``, ``.pth``, ``.bin`` or ``.ckpt`` with a state dict in it, also of Lightning.

    Nothing in the file is executed: one that holds more than tensors and plain values is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
                return Checkpoint(path=path, state=state, content=state, metadata=file.metadata())
        except SafetensorError as error:
            raise ValueError(f"{path} is not a complete safetensors file: {error}") from error
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        with path.open("rb") as file:
            if file.read(2) not in (
                b"PK",
                b"\x80\x02",
                b"\x80\x03",
                b"\x80\x04",
                b"\x80\x05",
            ):  # neither zip nor pickle
                raise ValueError(f"{path} is not a PyTorch file") from error
        raise ValueError(
            f"{path} holds Python objects, which could run code, and was refused; nothing was executed. Save the state dict "
            f"alone: torch.save(model.state_dict(), ...)"
        ) from error
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is not a complete PyTorch file: {str(error).splitlines()[0]}") from error
    inside = _found(content)
    if inside is None:
        raise ValueError(
            f"{path}: no state dict in it; looked for a dictionary of tensors, also below {', '.join(CONTAINERS)}"
        )
    state = content
    for key in inside:
        state = state[key]
    return Checkpoint(path=path, state=state, content=content, inside=inside)


def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give the model these weights; floats of another type are converted."""
    with torch.no_grad():
        for name, tensor in stored_tensors(model).items():
            tensor.copy_(tensors[name])


def bare(tensors: Mapping[str, Tensor]) -> nn.Module:
    """A module that holds copies of the tensors under these names and cannot do anything: enough to be patched."""
    root = nn.Module()
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        place.register_parameter(last, nn.Parameter(tensor.detach().clone(), requires_grad=False))
    return root


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """The other names that tied tensors have in a state dict."""
    every = model.state_dict(keep_vars=True)
    names = {id(every[name]): name for name in stored_tensors(model)}
    found: dict[str, list[str]] = {}
    for name, tensor in every.items():
        if id(tensor) in names and names[id(tensor)] != name:
            found.setdefault(names[id(tensor)], []).append(name)
    return found


def _beginnings(name: str) -> list[str]:
    """'a.', 'a.b.', ... of 'a.b.c'."""
    parts = name.split(".")[:-1]
    return [".".join(parts[: count + 1]) + "." for count in range(len(parts))]


def _found(content: Any) -> tuple[str, ...] | None:
    """The keys that lead to a dictionary of tensors."""
    if not isinstance(content, Mapping):
        return None
    if content and all(isinstance(value, Tensor) for value in content.values()):
        return ()
    for key in CONTAINERS:
        if key in content and (below := _found(content[key])) is not None:
            return (key, *below)
    return None


def _replaced(content: Any, inside: tuple[str, ...], new: Mapping[str, Tensor]) -> Any:
    """A copy of the dictionaries on the way to the weights, and of nothing else; what hangs on them comes along."""
    changed = copy.copy(content)
    changed.update({inside[0]: _replaced(content[inside[0]], inside[1:], new)} if inside else new)
    return changed


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
