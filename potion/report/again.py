"""The command that makes a heal again, from the inputs that its result names."""

from __future__ import annotations

import json
import shlex
from dataclasses import MISSING, fields
from typing import Any

from potion.repair.settings import Settings

__all__ = ["again"]


def again(inputs: dict[str, Any]) -> str | None:
    """``potion heal`` with every option that is not as it would be by itself; nothing where these are no such inputs."""
    if not all(isinstance(inputs.get(name), str) for name in ("model", "data", "known")):
        return None
    words = ["potion", "heal"]
    for field in fields(Settings):
        value = inputs.get(field.name)
        if value is None or value == field.default or (field.default is MISSING and value == {}):
            continue
        words += _option(field.name, value)
    return shlex.join([*words, "--out", "again"])


def _option(name: str, value: Any) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if name == "model_args" and isinstance(value, dict):
        pairs = (f"{key}={each if isinstance(each, str) else json.dumps(each)}" for key, each in value.items())
        return [word for pair in pairs for word in ("--model-arg", pair)]
    if isinstance(value, bool):
        return [option]
    return [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
