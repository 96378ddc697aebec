"""What all commands of the command line share."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

__all__ = ["Json", "Quiet", "fail"]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and the JSON, with --json).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def fail(message: str, code: int = 2) -> NoReturn:
    """One clear sentence on stderr, and the exit code: 2 is usage or bad input."""
    typer.echo(f"potion: {message}", err=True)
    sys.exit(code)
