"""Suspects as a list that a spreadsheet opens, and as a contact sheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from PIL import Image, ImageDraw

from potion.discover import Suspect, Suspects, discover
from potion.repair.case import Case
from potion.repair.folder import all_or_nothing
from potion.repair.processes import explained
from potion.result import HealResult

__all__ = ["discovered", "sheet_of", "write_suspects"]

DRAWN: Final = 60
COLUMNS: Final = 10
SIDE: Final = 96
"""Pixels of a picture on the sheet."""


@explained()
def discovered(case: Case, result: HealResult) -> Suspects:
    """The suspects of a case that was healed."""
    return discover(
        case.model,
        result,
        case.train,
        unaugmented=case.train.plain(),
        batch_size=case.settings.batch_size,
        device=case.device,
        seed=case.settings.seed,
        workers=case.settings.workers,
    )


def sheet_of(path: Path) -> Path:
    """The sheet that belongs to a list."""
    return path.with_suffix(".png")


def write_suspects(path: Path, case: Case, suspects: Suspects) -> list[Path]:
    """The list and, where there are any suspects, the sheet beside it: both or neither; returns the files."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    names, classes = case.files, case.train.classes
    rows.writerow(["rank", "index", "name", "label", "believed", "score", "fell", "poison"])
    for rank, suspect in enumerate(suspects, 1):
        rows.writerow([
            rank, suspect.index, "" if names is None else names[suspect.index], classes[suspect.label],
            classes[suspect.believed], f"{suspect.score:.4f}", f"{suspect.fell:.2f}",
            int(rank <= suspects.cut),
        ])  # fmt: skip
    sheet = sheet_of(path)
    try:
        with all_or_nothing(path.parent, [each for each in (path, sheet) if each.exists()]) as partial:
            (partial / path.name).write_text(text.getvalue(), encoding="utf-8")
            if len(suspects):
                _sheet(case, suspects[:DRAWN], suspects.cut).save(partial / sheet.name, "PNG")
    except OSError as error:
        raise OSError(f"cannot write {path}, where all is as it was: {error}") from error
    return [path, sheet] if len(suspects) else [path]


def _sheet(case: Case, suspects: Sequence[Suspect], cut: int) -> Image.Image:
    """The surest suspects, ten a row, with their index and the class that they belong to; poison has a red frame."""
    height = SIDE + 26
    sheet = Image.new("RGB", (COLUMNS * SIDE, -(-len(suspects) // COLUMNS) * height), "white")
    draw = ImageDraw.Draw(sheet)
    images, _ = case.train.images.raw(torch.tensor([suspect.index for suspect in suspects]))
    for place, (suspect, image) in enumerate(zip(suspects, images.cpu(), strict=True)):
        left, top = place % COLUMNS * SIDE, place // COLUMNS * height
        picture = Image.fromarray(image.permute(1, 2, 0).squeeze(-1).numpy()).convert("RGB")
        sheet.paste(picture.resize((SIDE - 8, SIDE - 8), Image.Resampling.NEAREST), (left + 4, top + 4))
        if place < cut:
            draw.rectangle((left + 1, top + 1, left + SIDE - 2, top + SIDE - 2), outline=(204, 51, 17), width=3)
        draw.text((left + 4, top + SIDE), f"{suspect.index}\n{case.train.classes[suspect.believed]}"[:40], fill="black")
    return sheet
