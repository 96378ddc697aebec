"""Somebody's model by name: a Python factory, one of ours, one of timm's, or a Hugging Face folder."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from potion.models import MODELS, Normalize, build

__all__ = ["Network", "find_network"]

HUB_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, kw_only=True)
class Network:
    """A model, where its weights lie if it brings them along, and the normalisation that it expects but does not do."""

    module: nn.Module
    weights: Path | None = None
    trained: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def find_network(name: str, arguments: dict[str, Any], classes: int) -> Network:
    """The model that ``--model`` names, with as many ``classes`` as the data has where the arguments do not say."""
    if (Path(name) / "config.json").is_file():
        return _hugging_face(Path(name), arguments)
    if ":" in name and not name.startswith("timm:"):
        return Network(module=_returning_logits(_from_factory(name, arguments)), trained=True)
    settings = dict(arguments)
    for word in ("classes", "num_classes"):
        classes = settings.pop(word, classes)
    try:
        if name in MODELS:
            return Network(module=build(name, classes, **settings))
        if not name.startswith("timm:") and not _timm_has(name):
            raise ValueError(
                f"--model {name}: neither package.module:function, nor a folder with a config.json, nor a model of timm "
                f"(pip install 'potion[vit]'), nor one of {', '.join(MODELS)}"
            )
        normalize, core = build(f"timm:{name.removeprefix('timm:')}", classes, **settings).children()
    except (TypeError, ModuleNotFoundError) as error:
        raise ValueError(f"--model {name}: {error}") from error
    # Weights trained with timm have timm's names: its normalisation is done on the way in, not by a layer in front.
    assert isinstance(normalize, Normalize)
    mean, std = (tuple(values.flatten().tolist()) for values in (normalize.mean, normalize.std))
    return Network(module=core, mean=mean, std=std)


def _timm_has(name: str) -> bool:
    try:
        import timm
    except ModuleNotFoundError:
        return False
    return bool(timm.is_model(name.split(".", maxsplit=1)[0]))


def _from_factory(name: str, arguments: dict[str, Any]) -> nn.Module:
    path, _, function = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:  # the ``potion`` script does not look here by itself
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory: Any = importlib.import_module(path)
        for part in function.split("."):
            factory = getattr(factory, part)
    except ModuleNotFoundError as error:
        if error.name is not None and (path == error.name or path.startswith(f"{error.name}.")):
            raise ValueError(f"--model {name}: there is no module {error.name!r}, also not in this folder") from None
        raise ValueError(f"--model {name}: importing {path} failed: {error}") from error
    except AttributeError:
        raise ValueError(f"--model {name}: {path} has no {function!r}") from None
    except Exception as error:  # somebody else's module may raise anything
        raise ValueError(f"--model {name}: importing {path} failed: {_told(error)}") from error
    try:
        model = factory(**arguments)
    except Exception as error:  # and so may their function
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ValueError(f"--model {name}: {function}({shown}) raised {_told(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"--model {name}: {function} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _hugging_face(folder: Path, arguments: dict[str, Any]) -> Network:
    try:
        import transformers
    except ModuleNotFoundError:
        raise ValueError(
            f"--model {folder} is a Hugging Face folder, which needs transformers: pip install transformers"
        ) from None
    weights = next((folder / name for name in HUB_WEIGHTS if (folder / name).is_file()), None)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, **arguments)
    model = transformers.AutoModelForImageClassification.from_config(config)
    statistics = folder / "preprocessor_config.json"
    known = json.loads(statistics.read_text()) if statistics.is_file() else {}
    mean, std = (tuple(known[key]) if key in known else None for key in ("image_mean", "image_std"))
    return Network(module=_returning_logits(model), weights=weights, mean=mean, std=std)


def _returning_logits(model: nn.Module) -> nn.Module:
    """A transformers model as one that returns its logits alone. Its weights keep their names, so a patch fits both."""
    kind: Any = type(model)
    if not any(cls.__name__ == "PreTrainedModel" for cls in kind.__mro__):
        return model

    def forward(self: nn.Module, pixel_values: Tensor) -> Any:
        return kind.forward(self, pixel_values=pixel_values).logits

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return model


def _told(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
