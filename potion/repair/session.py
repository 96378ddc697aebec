"""A heal from the first look at the inputs to the exit code, alone or under ``torchrun``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import torch
import typer

from potion.distributed import world
from potion.files import check_writable
from potion.repair.case import Case, open_case
from potion.repair.choose import Choice, choose
from potion.repair.estimate import estimate
from potion.repair.folder import ORIGINAL, REPORT, all_or_nothing, check_free, outputs
from potion.repair.healing import heal_case
from potion.repair.processes import BAD_INPUT, Refused, meeting, together
from potion.repair.settings import Settings
from potion.repair.shown import show_plan, show_record
from potion.runtime import best_device
from potion.types import Status
from potion.validation import known_device

__all__ = ["Output", "Page", "Talk", "run_choice", "run_heal"]

Talk = Literal["text", "json", "nothing"]
Page = Callable[[dict[str, Any], str], str]
"""(record, the folder that it lies in) -> HTML."""
HEALED: Final = 0
NOT_HEALED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the results go (a dry run may leave that open), which page is made of them, and what is said about them."""

    folder: Path | None
    page: Page | None
    force: bool
    talk: Talk
    progress: bool

    def check(self, *inputs: Path) -> None:
        """Refuse a folder that is in use or cannot be written, before anything is computed; nothing is made yet."""
        if self.folder is not None and world().rank == 0:
            check_free(self.folder, force=self.force, inputs=inputs)
            check_writable(self.folder)

    def write(self, write: Callable[[Path], None], record: dict[str, Any]) -> list[str]:
        """Put what ``write`` writes and the record's page into the folder, all or nothing; the names of the files."""
        if self.folder is None or world().rank != 0:
            return []
        try:
            with all_or_nothing(self.folder, outputs(self.folder)) as partial_folder:
                write(partial_folder)
                if html := self._html(record):
                    (partial_folder / REPORT).write_text(html, encoding="utf-8")
                return sorted(path.name for path in partial_folder.iterdir())
        except BAD_INPUT as error:
            raise OSError(f"cannot write to {self.folder}, where all is as it was: {error}") from error

    def _html(self, record: dict[str, Any]) -> str | None:
        if self.page is None:
            return None
        try:
            return self.page(record, str(self.folder))
        except Exception as error:  # a finished heal is worth more than its page
            typer.echo(f"potion: no {REPORT}: {type(error).__name__}: {error}", err=True)
            return None

    def say(self, record: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> None:
        """The record as JSON, less its pictures, or for people, by one of the processes."""
        if world().rank != 0 or self.talk == "nothing":
            return
        if self.talk == "json":
            typer.echo(json.dumps({key: value for key, value in record.items() if key != "pictures"}, indent=1))
        else:
            show(record)


def run_heal(settings: Settings, device: str | None, output: Output, *, dry_run: bool = False) -> int:
    """Heal, write, say so, or only say what would be done; the exit code."""
    place = best_device() if device is None else known_device(device)
    with meeting(place):
        case = together(partial(_opened, settings, place, output))
        if dry_run:
            plan = together(partial(estimate, case))
            output.say(plan, show_plan)
            return HEALED
        try:
            healing = heal_case(case, progress=output.progress)
        except BAD_INPUT as error:
            raise Refused(str(error), alone=True) from error
        files = together(partial(output.write, healing.write, healing.record))
        return _finish(healing.record, files, output)


def run_choice(source: Path, rho: float, weights: str | None, output: Output) -> int:
    """Another point of a finished search, written and said; the exit code."""

    def chosen() -> Choice:
        output.check()
        choice = choose(source, rho, weights)
        original = choice.checkpoint.path
        if original.resolve() != (source / ORIGINAL).resolve():  # that one comes along, and stays in its place
            output.check(original)
        return choice

    with meeting(torch.device("cpu")):
        choice = together(chosen)
        return _finish(choice.record, together(partial(output.write, choice.write, choice.record)), output)


def _opened(settings: Settings, place: torch.device, output: Output) -> Case:
    weights = [] if settings.weights is None else [Path(settings.weights)]
    output.check(*weights)
    return open_case(settings, place)


def _finish(record: dict[str, Any], files: list[str], output: Output) -> int:
    folder = output.folder or Path()
    output.say(record, lambda each: show_record(each, folder, files))
    return HEALED if record["status"] == Status.HEALED.value else NOT_HEALED
