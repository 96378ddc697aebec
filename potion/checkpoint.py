"""Somebody's weights: read without running anything, fitted to a model by name, written back in their own format."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from potion.errors import told
from potion.files import replacing
from potion.fingerprint import stored_tensors

__all__ = ["Checkpoint", "Names", "bare", "fill", "read_checkpoint"]

CONTAINERS: Final = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
"""Where training scripts put the weights among other things."""

Names = dict[str, list[str]]
"""For each of a model's tensors, tied ones once, the keys that hold it in a file; not for a counter it does not hold."""


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

        Prefixes that parallel, compiled and Lightning models have are found by themselves, on both sides. Keys
        outside of the prefix (a loss, an average of the weights) are left alone.
        """
        wanted, aliases = stored_tensors(model), _aliases(model)
        every = {*wanted, *(alias for group in aliases.values() for alias in group)}
        likely = self._likely_prefixes(every)
        matches = (self._match(prefix, stripped, wanted, aliases, every) for prefix, stripped in likely)
        names = next((match.names for match in matches if not match.missing and not match.beyond), None)
        if names is None:
            raise ValueError(self._misfit(self._match(*likely[0], wanted, aliases, every), every))
        for name, keys in names.items():
            for key in keys:
                if self.state[key].shape != wanted[name].shape:
                    raise ValueError(
                        f"{self.path} does not fit the model: {key} has the shape {tuple(self.state[key].shape)}, the model "
                        f"wants {tuple(wanted[name].shape)}; check the arguments of the model, as the number of classes"
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

    def _likely_prefixes(self, every: set[str]) -> list[tuple[str, str]]:
        """What may stand before all names in file and model: those first with which most names fit, then short ones."""
        common = [part for part in _beginnings(min(every, default="")) if all(name.startswith(part) for name in every)]
        fitting = Counter({("", ""): 0})
        for stripped in ("", *common):
            rests = {name.removeprefix(stripped) for name in every}
            for key in self.state:
                for prefix in ("", *_beginnings(key)):
                    # Where both end alike nothing is gained: the same names fit with less taken from either side.
                    alike = stripped and f".{prefix}".endswith(f".{stripped}")
                    if key.removeprefix(prefix) in rests and not alike:
                        fitting[prefix, stripped] += 1
        return sorted(fitting, key=lambda pair: (-fitting[pair], len(pair[0]), len(pair[1])))

    def _match(
        self, prefix: str, stripped: str, wanted: Iterable[str], aliases: Mapping[str, list[str]], every: set[str]
    ) -> _Match:
        def keys(name: str) -> list[str]:
            own = (prefix + each.removeprefix(stripped) for each in (name, *aliases.get(name, ())))
            return [key for key in own if key in self.state]

        names = {name: found for name in wanted if (found := keys(name))}
        known = {prefix + name.removeprefix(stripped) for name in every}
        return _Match(
            prefix=prefix,
            stripped=stripped,
            names=names,
            missing=[name for name in wanted if name not in names and not _is_counter(name)],
            beyond=[key for key in self.state if key.startswith(prefix) and key not in known],
        )

    def _misfit(self, match: _Match, every: set[str]) -> str:
        sides = (("its names", match.prefix), ("the model's", match.stripped))
        taken = " and ".join(f"{whose} without {part!r}" for whose, part in sides if part)
        unknown = [key.removeprefix(match.prefix) for key in match.beyond]
        parts = dict.fromkeys(part for name in sorted(every) for part in _beginnings(name))
        inner = next((part for part in parts if all(part + key in every for key in self.state)), None)
        hint = f"; it would fit the part of the model below {inner!r}: load it there, and save the whole model"
        return (
            f"{self.path} does not fit the model: {f'taking {taken}, ' if taken else ''}it lacks {_some(match.missing)}, "
            f"and has {_some(unknown)} that the model does not know{hint if inner else ''}"
        )


@dataclass(frozen=True, kw_only=True)
class _Match:
    """A file's names without ``prefix`` beside a model's without ``stripped``: what is in both, and in one alone."""

    prefix: str
    stripped: str
    names: Names
    missing: list[str]
    beyond: list[str]


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """A ``.safetensors`` file, or a ``.pt``, ``.pth``, ``.bin`` or ``.ckpt`` with a state dict in it, also of Lightning.

    Nothing in the file is executed: one that holds more than tensors and plain values is refused.
    """
    path = Path(path)
    if path.is_dir():
        raise FileNotFoundError(f"the weights {path} are a folder: name the file in it")
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
                return Checkpoint(path=path, state=state, content=state, metadata=file.metadata())
        except SafetensorError as error:
            raise ValueError(f"{path} is not a complete safetensors file: {error}") from error
    content = _unpickled(path)
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
    """Give the model these weights; floats of another type are converted, and a counter that is not there stays."""
    with torch.no_grad():
        for name, tensor in stored_tensors(model).items():
            if name in tensors or not _is_counter(name):
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


def _unpickled(path: Path) -> Any:
    """What torch.save wrote, as long as it is tensors and plain values."""
    if _is_torchscript(path):
        raise ValueError(
            f"{path} is a TorchScript archive, which holds code; save its weights alone: "
            f"torch.save(torch.jit.load({str(path)!r}).state_dict(), ...)"
        )
    with path.open("rb") as file:
        begin, headed = file.read(2), file.read(7)[6:] == b"{"
    if headed and begin != b"PK":
        raise ValueError(f"{path} looks like safetensors: let its name end in .safetensors")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if begin not in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):  # neither zip nor pickle
            raise ValueError(f"{path} is not a PyTorch file") from error
        if "Unsupported operand" in str(error):  # bytes that no pickle has
            raise ValueError(f"{path} is damaged: it is not a complete PyTorch file") from error
        raise ValueError(
            f"{path} holds Python objects, which could run code, and was refused; nothing was executed. Save the state dict "
            f"alone: torch.save(model.state_dict(), ...)"
        ) from error
    except Exception as error:  # damaged bytes raise anything at all
        raise ValueError(f"{path} is damaged: it is not a complete PyTorch file ({told(error)})") from error


def _is_torchscript(path: Path) -> bool:
    """As torch itself tells it, which would warn and advise to load it unsafely."""
    with contextlib.suppress(Exception), zipfile.ZipFile(path) as archive:  # a damaged one may raise anything
        return any(name.endswith("/constants.pkl") for name in archive.namelist())
    return False


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """The other names that tied tensors have in a state dict."""
    every = model.state_dict(keep_vars=True)
    names = {id(every[name]): name for name in stored_tensors(model)}
    found: dict[str, list[str]] = {}
    for name, tensor in every.items():
        if id(tensor) in names and names[id(tensor)] != name:
            found.setdefault(names[id(tensor)], []).append(name)
    return found


def _is_counter(name: str) -> bool:
    """How many batches a batch norm has seen: without influence on what a model says, and missing in some files."""
    return name == "num_batches_tracked" or name.endswith(".num_batches_tracked")


def _beginnings(name: str) -> list[str]:
    """'a.', 'a.b.', ... of 'a.b.c'."""
    parts = name.split(".")[:-1]
    return [".".join(parts[: count + 1]) + "." for count in range(len(parts))]


def _found(content: Any) -> tuple[str, ...] | None:
    """The keys that lead to a dictionary of tensors."""
    if not isinstance(content, Mapping):
        return None
    if content and all(isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()):
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
