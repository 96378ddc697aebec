"""A suite: data, model, training, attacks, methods, shares and seeds, in one TOML file."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from potion.attacks import ATTACKS, Attack
from potion.baselines import METHODS
from potion.bench.schema import SuiteError, fill, unknown_key
from potion.models import MODELS
from potion.search import PTN
from potion.training import Recipe

__all__ = ["SHIPPED", "AttackSpec", "DataSpec", "ModelSpec", "Runs", "Suite", "Sweep", "load_suite", "shipped_suites"]

SHIPPED: Final = Path(__file__).parent / "suites"
KEYS: Final = ("title", "extends", "data", "model", "training", "attacks", "runs", "search", "sweep")


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Which images, and how a victim sees them: see :func:`potion.data.load` and :class:`potion.data.View`.

    ``pad`` adds black borders up to that size; ``limit`` and ``test_limit`` take the first so many images only;
    ``baked`` makes the trigger part of the stored image. ``batch_size`` is that of the importances (FACTS 7).
    """

    source: str
    size: int | None = None
    streamed: bool | None = None
    pad: int | None = None
    limit: int | None = None
    test_limit: int | None = None
    padding: int = 0
    flip: bool = False
    baked: bool = False
    batch_size: int = 512

    def __post_init__(self) -> None:
        for name in ("size", "pad", "limit", "test_limit", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.padding < 0:
            raise ValueError(f"padding must be 0 or more pixels, got {self.padding}")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A name of :func:`potion.models.build`, and its settings. A relative ``weights`` lies in the data folder."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttackSpec:
    """A name of ``ATTACKS`` with its settings; ``label`` tells two of the same name apart in folders and figures."""

    name: str
    label: str
    settings: dict[str, Any] = field(default_factory=dict)

    def attack(self) -> Attack:
        """The attack itself."""
        return fill(ATTACKS[self.name], self.settings, f"attack {self.name}")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Every method with every known share and every seed. A share is a count (1) or a part of the poison ("10%")."""

    methods: tuple[str, ...]
    known: tuple[int | str, ...]
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for name in ("methods", "known", "seeds"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: there is nothing to run")
        for method in self.methods:
            if method not in METHODS:
                raise ValueError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
        for share in self.known:
            known_count(share, 1000)
        if any(seed < 0 for seed in self.seeds):
            raise ValueError(f"seeds must be 0 or more, got {list(self.seeds)}")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Other stopping points of the same search: every ``rho`` with every ``step``, and a curve of so many points of s.

    With ``bisect`` each point is searched by bisection, too, to see whether it ends at the same place.
    """

    rho: tuple[float, ...] = ()
    step: tuple[float, ...] = ()
    curve: int = 0
    bisect: bool = False

    def __post_init__(self) -> None:
        for rho in self.rho:
            PTN(rho=rho)
        for step in self.step:
            PTN(step=step)
        if self.curve < 0 or self.curve == 1:
            raise ValueError(f"curve must be 0 or at least 2 points, got {self.curve}")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A benchmark, validated. ``epochs`` stands for ``recipe.iterations`` where the size of the data decides them."""

    name: str
    title: str
    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    epochs: int | None
    attacks: tuple[tuple[AttackSpec, tuple[int, ...]], ...]
    runs: tuple[Runs, ...]
    search: PTN
    sweep: Sweep | None

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)


def known_count(share: int | str, poisoned: int) -> int:
    """How many samples a share is: 3 is 3, "10%" of 500 is 50."""
    if isinstance(share, int):
        if share < 1:
            raise ValueError(f"known must be at least 1 sample, got {share}")
        return share
    try:
        percent = float(share.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not share.endswith("%") or not 0 < percent <= 100:
        raise ValueError(f'known must be a count or a share like "10%", got {share!r}')
    return max(1, round(percent / 100 * poisoned))


def shipped_suites() -> dict[str, Path]:
    """The suites in the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def load_suite(source: str | os.PathLike[str]) -> Suite:
    """A shipped suite by name, or anybody's own by the path of its TOML file, which names it."""
    path = shipped_suites().get(str(source), Path(source))
    if path.suffix != ".toml" or not path.is_file():
        raise SuiteError(f"no suite {str(source)!r}: neither a TOML file nor one of {', '.join(shipped_suites())}")
    if path.stem in shipped_suites() and path.resolve() != shipped_suites()[path.stem].resolve():
        raise SuiteError(f"{path.name}: {path.stem} is the name of a shipped suite; give the file another one")
    table = _read(path)
    for key in table:
        if key not in KEYS:
            raise SuiteError(f"{path.name}: {key}: {unknown_key(key, KEYS)}")
    for key in ("data", "model", "training", "attacks", "runs"):
        if key not in table:
            raise SuiteError(f"{path.name}: {key} is missing")
    where = f"{path.name}: "
    training = _table(table["training"], f"{where}training")
    epochs = training.pop("epochs", None)
    if epochs is not None and (not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1):
        raise SuiteError(f"{where}training.epochs must be a whole number of at least 1, got {epochs!r}")
    if epochs is not None and "iterations" in training:
        raise SuiteError(f"{where}training.epochs and training.iterations exclude each other")
    runs = _list(table["runs"], f"{where}runs")
    return Suite(
        name=path.stem,
        title=str(table.get("title", path.stem)),
        data=fill(DataSpec, table["data"], f"{where}data"),
        model=_model(table["model"], f"{where}model"),
        recipe=fill(Recipe, training, f"{where}training"),
        epochs=epochs,
        attacks=_attacks(table["attacks"], f"{where}attacks"),
        runs=tuple(fill(Runs, each, f"{where}runs[{k}]") for k, each in enumerate(runs)),
        search=fill(PTN, table.get("search", {}), f"{where}search"),
        sweep=fill(Sweep, table["sweep"], f"{where}sweep") if "sweep" in table else None,
    )


def _read(path: Path) -> dict[str, Any]:
    """The file's tables, over those of the suite that it extends."""
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path.name}: not TOML: {error}") from error
    base = table.pop("extends", None)
    if base is None:
        return table
    if base not in shipped_suites() or shipped_suites()[base] == path:
        raise SuiteError(f"{path.name}: extends: no other suite {base!r}; there are {', '.join(shipped_suites())}")
    return _merged(_read(shipped_suites()[base]), table)


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key and everything else is replaced, also the model: its settings fit no other.

    Iterations and epochs replace each other.
    """
    merged = dict(below)
    for one, other in (("iterations", "epochs"), ("epochs", "iterations")):
        if one in above:
            merged.pop(other, None)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict) and key != "model"
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _model(table: Any, where: str) -> ModelSpec:
    settings = _table(table, where)
    name = settings.pop("name", None)
    if not isinstance(name, str) or (name not in MODELS and not name.startswith("timm:")):
        raise SuiteError(f"{where}.name must be one of {', '.join(MODELS)} or timm:NAME, got {name!r}")
    if name in MODELS:
        parameters = inspect.signature(MODELS[name]).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            for key in settings:
                if key not in parameters or key == "classes":
                    known = [each for each in parameters if each != "classes"]
                    raise SuiteError(f"{where}.{key}: {unknown_key(key, known)}")
    return ModelSpec(name=name, settings=settings)


def _attacks(tables: Any, where: str) -> tuple[tuple[AttackSpec, tuple[int, ...]], ...]:
    found: list[tuple[AttackSpec, tuple[int, ...]]] = []
    for k, each in enumerate(_list(tables, where)):
        settings = _table(each, f"{where}[{k}]")
        name, poisoned = settings.pop("name", None), settings.pop("poisoned", None)
        if name not in ATTACKS:
            raise SuiteError(f"{where}[{k}].name must be one of {', '.join(ATTACKS)}, got {name!r}")
        label = settings.pop("label", name)
        if not isinstance(label, str) or not label or not label.replace("-", "").replace("_", "").isalnum():
            raise SuiteError(f"{where}[{k}].label must be letters, digits, - and _, got {label!r}")
        sizes = poisoned if isinstance(poisoned, list) else [poisoned]
        if not sizes or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
            raise SuiteError(f"{where}[{k}].poisoned must be whole numbers of poisoned samples, got {poisoned!r}")
        fill(ATTACKS[name], settings, f"{where}[{k}]")
        if label in [spec.label for spec, _ in found]:
            raise SuiteError(
                f"{where}[{k}].label: there is another attack called {label!r}; give this one its own label"
            )
        found.append((AttackSpec(name=name, label=label, settings=settings), tuple(sizes)))
    return tuple(found)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SuiteError(f"{where} must be a table, got {value!r}")
    return dict(value)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise SuiteError(f"{where} must be a list of tables with at least one entry, got {value!r}")
    return value
