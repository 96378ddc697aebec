"""What is to be run: a suite unrolled into runs, each with a name, a path and a key of its own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from potion.baselines.ptn import PTN_METHODS
from potion.bench.schema import SuiteError, fill
from potion.bench.suite import AttackSpec, DataSpec, ModelSpec, Suite, Sweep, known_count
from potion.search import PTN
from potion.training import Recipe

__all__ = ["Run", "digest", "essential", "plan", "planned_or_present", "selected", "sharded"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method on one poisoned model with some known poison: everything that its result depends on.

    ``known`` is 0 for the method that looks at nothing (``none``), which is run once for each victim. ``search`` and
    ``sweep`` belong to the methods that search. The seed decides the poison, the known part of it, and all training.
    """

    suite: str
    suite_digest: str
    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    epochs: int | None
    attack: AttackSpec
    poisoned: int
    known: int
    method: str
    seed: int
    search: PTN | None = None
    sweep: Sweep | None = None

    @property
    def scenario(self) -> str:
        """The name of the scenario's folder."""
        return f"{self.attack.label}-m{self.poisoned}-f{self.known}"

    @property
    def path(self) -> str:
        """Where the result lies below the results folder."""
        return f"{self.suite}/{self.scenario}/{self.method}-s{self.seed}.json"

    @cached_property
    def key(self) -> str:
        """A digest of everything that the result depends on."""
        return digest(self._settings())

    @cached_property
    def victim(self) -> str:
        """A digest of what the runs on one victim have in common."""
        settings = self._settings()
        return digest({key: settings[key] for key in settings.keys() - {"known", "method", "search", "sweep"}})

    @property
    def untreated(self) -> Run:
        """The run of the same victim that does nothing."""
        return replace(self, method="none", known=0, search=None, sweep=None)

    def _settings(self) -> dict[str, Any]:
        """All but names, which change nothing."""
        settings = essential(self)
        del settings["suite"], settings["suite_digest"], settings["attack"]["label"]
        return settings

    def to_dict(self) -> dict[str, Any]:
        """The run as a result file keeps it, so that it can be run again without its suite."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any, where: str) -> Run:
        """The run that a result file describes."""
        if not isinstance(stored, dict):
            raise SuiteError(f"{where}.run must be a table, got {stored!r}")
        parts = {
            "data": DataSpec,
            "model": ModelSpec,
            "attack": AttackSpec,
            "recipe": Recipe,
            "search": PTN,
            "sweep": Sweep,
        }
        values = {
            key: fill(parts[key], value, f"{where}.run.{key}") if key in parts and value is not None else value
            for key, value in stored.items()
        }
        try:
            return cls(**values)
        except TypeError as error:
            raise SuiteError(f"{where}.run: {error}") from error


def plan(suite: Suite, seeds: Sequence[int] | None = None) -> list[Run]:
    """All runs of a suite, those of one victim together; ``seeds`` takes the place of the suite's own."""
    found: dict[str, Run] = {}
    suite_digest = digest(suite.to_dict())
    for attack, sizes in suite.attacks:
        for poisoned in sizes:
            for block in suite.runs:
                for seed in block.seeds if seeds is None else seeds:
                    for share in block.known:
                        for method in block.methods:
                            known = 0 if method == "none" else known_count(share, poisoned)
                            if known > poisoned:
                                raise SuiteError(f"{suite.name}: runs.known: {known} of {poisoned} poisoned samples")
                            searches = method in PTN_METHODS
                            run = Run(
                                suite=suite.name,
                                suite_digest=suite_digest,
                                data=suite.data,
                                model=suite.model,
                                recipe=suite.recipe,
                                epochs=suite.epochs,
                                attack=attack,
                                poisoned=poisoned,
                                known=known,
                                method=method,
                                seed=seed,
                                search=suite.search if searches else None,
                                sweep=suite.sweep if searches else None,
                            )
                            found.setdefault(run.path, run)
    return sorted(found.values(), key=lambda run: (run.seed, run.attack.label, run.poisoned))


def planned_or_present(suite: Suite, folder: Path) -> list[Run]:
    """The runs of a suite, and those with other seeds that have a file in the results folder."""
    runs = plan(suite)
    names = (re.fullmatch(r".*-s(\d+)", path.stem) for path in (folder / suite.name).glob("*/*.json"))
    seeds = {int(name[1]) for name in names if name} - {run.seed for run in runs}
    return runs + [run for run in plan(suite, sorted(seeds)) if (folder / run.path).exists()] if seeds else runs


def selected(runs: Iterable[Run], only: Sequence[str]) -> list[Run]:
    """The runs that one of the patterns names: a method, or a glob of scenario, file or ``scenario/file``."""
    runs = list(runs)
    chosen = [run for run in runs if not only or any(_named(run, pattern) for pattern in only)]
    for pattern in only:
        if not any(_named(run, pattern) for run in runs):
            methods = ", ".join(dict.fromkeys(run.method for run in runs))
            raise SuiteError(
                f"--only {pattern}: no such run; it takes a method ({methods}) or a name like {runs[0].scenario}, with *"
            )
    return chosen


def sharded(runs: Iterable[Run], part: int, parts: int) -> list[Run]:
    """Part ``part`` (from 1) of ``parts``: whole victims, so that none is trained twice."""
    runs = list(runs)
    victims = list(dict.fromkeys(run.victim for run in runs))
    mine = set(victims[part - 1 :: parts])
    return [run for run in runs if run.victim in mine]


def essential(settings: Any) -> dict[str, Any]:
    """A dataclass as a dictionary without the values that are defaults: a field that is added later, with a default that
    leaves things as they were, does not make old results strangers.
    """
    found = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if value != default:
            found[each.name] = essential(value) if is_dataclass(value) else value
    return found


def digest(value: Any) -> str:
    """SHA-256 of a value as canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _named(run: Run, pattern: str) -> bool:
    file = f"{run.method}-s{run.seed}"
    return pattern == run.method or any(
        fnmatch(name, pattern) for name in (run.scenario, file, f"{run.scenario}/{file}")
    )
