"""Somebody's model by name: a Python factory, one of ours, one of timm's, or a Hugging Face folder."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from potion.errors import told
from potion.models import MODELS, Normalize, build
from potion.models.vit import imported_timm, near_names

__all__ = ["Network", "find_network"]

HUB_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, kw_only=True)
class Network:
    """A model, where its weights lie if it brings them along, and the normalisation that it expects but does not do.

    ``classes`` are their names in the order of the logits, where it comes with them.
    """

    module: nn.Module
    weights: Path | None = None
    trained: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    classes: tuple[str, ...] | None = None


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
        if not name.startswith("timm:"):
            _check_in_timm(name)
        normalize, core = build(f"timm:{name.removeprefix('timm:')}", classes, **settings).children()
    except (TypeError, ImportError) as error:
        raise ValueError(f"--model {name}: {error}") from error
    # Weights trained with timm have timm's names: its normalisation is done on the way in, not by a layer in front.
    assert isinstance(normalize, Normalize)
    mean, std = (tuple(values.flatten().tolist()) for values in (normalize.mean, normalize.std))
    return Network(module=core, mean=mean, std=std)


def _check_in_timm(name: str) -> None:
    """The last place to look for a name."""
    module = Path(name).with_suffix(".py")
    if module.is_file():
        raise ValueError(f"--model {name}: name the function in it that makes the model, like {module.stem}:make")
    near = ""
    try:
        timm = imported_timm()
        if timm.is_model(name.split(".", maxsplit=1)[0]):
            return
        near = near_names(name, [*MODELS, *timm.list_models()])
    except ModuleNotFoundError:
        pass  # as the sentence says
    except ImportError as error:
        raise ValueError(f"--model {name}: it is none of {', '.join(MODELS)}, and {error}") from error
    raise ValueError(
        f"--model {name}: neither package.module:function, nor a folder with a config.json, nor a model of timm "
        f"(pip install 'potion[vit]'), nor one of {', '.join(MODELS)}{near}"
    )


def _from_factory(name: str, arguments: dict[str, Any]) -> nn.Module:
    path, _, function = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:  # the ``potion`` script does not look here by itself
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory: Any = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and (path == error.name or path.startswith(f"{error.name}.")):
            raise ValueError(f"--model {name}: there is no module {error.name!r}, also not in this folder") from None
        raise ValueError(f"--model {name}: importing {path} failed: {error}") from error
    except (Exception, SystemExit) as error:  # somebody else's module may raise anything, and end a script
        raise ValueError(f"--model {name}: importing {path} failed: {told(error)}") from error
    try:
        for part in function.split("."):
            factory = getattr(factory, part)
    except AttributeError:
        raise ValueError(f"--model {name}: {path} has no {function!r}") from None
    try:
        model = factory(**arguments)
    except (Exception, SystemExit) as error:  # and so may their function
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ValueError(f"--model {name}: {function}({shown}) raised {told(error)}") from error
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
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, **arguments)
        kind: Any = transformers.AutoModelForImageClassification
        model = kind.from_config(config)
    except Exception as error:  # a config.json may hold anything, and what it names is imported only now
        why = told(error.__cause__ or error)
        raise ValueError(f"--model {folder}: transformers could not build the model: {why}") from error
    statistics = folder / "preprocessor_config.json"
    known = json.loads(statistics.read_text()) if statistics.is_file() else {}
    mean, std = (tuple(known[key]) if key in known else None for key in ("image_mean", "image_std"))
    return Network(
        module=_returning_logits(model), weights=weights, mean=mean, std=std, classes=_class_names(config.id2label)
    )


def _class_names(id2label: dict[int, str]) -> tuple[str, ...] | None:
    """In the order of the logits; ``None`` for what transformers writes where nobody has named them."""
    names = tuple(id2label[place] for place in sorted(id2label, key=int))
    return None if all(name == f"LABEL_{place}" for place, name in enumerate(names)) else names


def _returning_logits(model: nn.Module) -> nn.Module:
    """A transformers model as one that returns its logits alone. Its weights keep their names, so a patch fits both."""
    kind: Any = type(model)
    if not any(cls.__name__ == "PreTrainedModel" for cls in kind.__mro__):
        return model

    def forward(self: nn.Module, pixel_values: Tensor) -> Any:
        return kind.forward(self, pixel_values=pixel_values).logits

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return model
