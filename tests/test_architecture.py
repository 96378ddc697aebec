"""The house: a module imports only from modules above it, and importing the package costs torch and little else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "potion"

ORDER = [
    *(
        "version",
        "types",
        "files",
        "stale",
        "runtime",
        "recorded",
        "distributed",
        "fingerprint",
        "progress",
        "provenance",
    ),
    *("errors", "forward", "batches"),
    *("checkpoint", "importance", "patch", "dampening", "ranking", "cursor", "search", "cache", "validation"),
    *("training", "antidote", "result", "working"),
    *("immunise", "neutralise", "heal", "discover"),
    *("attacks", "metrics", "data", "models", "baselines", "embedded", "gallery", "tradeoff"),
    *("demo", "terminal", "repair", "bench", "report", "cli"),
]
ANTIDOTE = [
    *("outliers", "margins", "features", "trigger", "localise", "settings", "pattern", "medicine", "admission", "ward"),
    *("carriers", "verdict", "likeness", "kin", "laboratory", "evidence", "treatment", "course"),
]


def imports(path, house="potion", order=ORDER):
    """The rooms of a house that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            room = name.removeprefix(f"{house}.").split(".")[0]
            if name.startswith(f"{house}.") and room in order:
                yield room


def rooms():
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not room.startswith("__"):
            yield pytest.param(room, path, id=path.relative_to(PACKAGE).as_posix())


@pytest.mark.parametrize(("room", "path"), list(rooms()))
def test_a_room_imports_only_from_rooms_above_it(room, path):
    assert room in ORDER, f"{room} has no place in the house: add it to ORDER"
    below = [other for other in imports(path) if ORDER.index(other) > ORDER.index(room)]
    assert not below, f"{room} imports from {below}, which stand below it"


@pytest.mark.parametrize("path", sorted((PACKAGE / "antidote").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_so_it_is_in_the_antidote(path):
    assert path.stem in ANTIDOTE, f"{path.stem} has no place in the antidote: add it to ANTIDOTE"
    others = set(imports(path, "potion.antidote", ANTIDOTE))
    assert others <= set(ANTIDOTE[: ANTIDOTE.index(path.stem)])


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, potion; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"rich", "typer", "matplotlib", "pyarrow", "PIL", "pandas", "timm", "ray", "datasets"} & set(loaded)


def test_the_public_names_are_few_and_real():
    import potion

    assert len(potion.__all__) <= 12
    assert all(hasattr(potion, name) for name in potion.__all__)
