"""The command under ``torchrun``: the processes meet by themselves, fail together, and one of them speaks."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist

from potion.distributed import World, all_gathered, world
from potion.errors import told

__all__ = ["BAD_INPUT", "Refused", "explained", "meeting", "together"]

T = TypeVar("T")

BAD_INPUT = (OSError, ValueError, TypeError, RuntimeError)
"""What wrong files and settings, a full disk or a full memory raise; anything else is a mistake of ours."""


class Refused(Exception):  # noqa: N818 (it is an answer)
    """One clear sentence that ends the command. With ``alone`` only this process may know it, so it must speak."""

    def __init__(self, message: str, *, alone: bool = False) -> None:
        super().__init__(message)
        self.alone = alone


@contextmanager
def explained() -> Iterator[None]:
    """An error of any kind as one that can be told in a sentence: somebody else's model may raise what it likes."""
    try:
        yield
    except BAD_INPUT:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise RuntimeError(f"{told(error)}, which was raised in {place.filename}, line {place.lineno}") from error


@contextmanager
def meeting(device: torch.device) -> Iterator[World]:
    """Join the other processes where ``torchrun`` has started any."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield world()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield world()
    finally:
        dist.destroy_process_group()


def together(action: Callable[[], T]) -> T:
    """What the action returns; where it fails in one process, :class:`Refused` in all of them, so that nobody waits."""
    value: list[T] = []
    error: str | None = None
    try:
        value.append(action())
    except BAD_INPUT as caught:
        error = str(caught) or type(caught).__name__
    for theirs in all_gathered(error):
        if theirs is not None:
            raise Refused(theirs)
    return value[0]
