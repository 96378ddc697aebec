"""What a heal on the command line was asked to do, checked as far as that goes without opening anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from potion.heal import METHODS
from potion.search import PTN, Strategy

__all__ = ["Settings", "model_arguments", "numbers"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The inputs as they were given; ``result.json`` repeats them."""

    model: str
    data: str
    known: str
    weights: str | None = None
    model_args: dict[str, Any] = field(default_factory=dict)
    method: str = "xlf"
    rho: float = 0.2
    step: float = 1.1
    strategy: str = "sequential"
    retain_share: float | None = None
    batch_size: int = 512
    seed: int = 0
    workers: int = 0
    size: int | None = None
    padding: int = 0
    flip: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    clean: str | None = None
    triggered: str | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"--method {self.method}: unknown; known are {', '.join(METHODS)}")
        if not 0 <= self.rho < 1:
            raise ValueError(
                f"--rho {self.rho:g}: give the share of the known poison's accuracy to stop at, 0 or more and below 1"
            )
        if self.retain_share is not None and not 0 < self.retain_share <= 1:
            raise ValueError(f"--retain-share {self.retain_share:g}: give a part of the data, above 0 and at most 1")
        self.search()
        if (self.mean is None) != (self.std is None):
            raise ValueError(
                "--mean and --std belong together: give both, or neither where the model normalises itself"
            )
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ValueError(f"--mean has {len(self.mean)} values and --std {len(self.std)}: give one a channel each")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise ValueError(f"--std must be positive, got {', '.join(map(str, self.std))}")

    def search(self) -> PTN:
        """The settings of the search, which checks them; its sentences begin with their names."""
        try:
            return PTN(rho=self.rho, step=self.step, strategy=cast(Strategy, self.strategy))
        except ValueError as error:
            raise ValueError(f"--{error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def model_arguments(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=value`` pairs; a value that is JSON is taken as that, everything else as a string."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--model-arg {pair}: write it as name=value, like width=16")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """``0.49,0.48,0.45`` as numbers."""
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} {text}: give one number a channel, like 0.49,0.48,0.45") from None
