"""Which page a file or a folder gets."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from potion.bench.results import ResultError
from potion.report.board_view import board_page, read_folder, read_result
from potion.report.checks import ReportError, read_json
from potion.report.demo_view import headline, is_demo
from potion.report.heal_view import heal_page, is_heal

__all__ = ["Page", "page_of"]


class Page(NamedTuple):
    """The HTML, and what to say about files that are not in it."""

    html: str
    notes: list[str]


def page_of(source: Path) -> Page:
    """The page of a heal's ``result.json`` or of its folder, or of a folder of the benchmark's results."""
    if not source.is_dir():
        return _of_file(source)
    if (source / "result.json").is_file():
        return _of_file(source / "result.json")
    records, problems = read_folder(source)
    if not records:
        others = f"; its {len(problems)} JSON files are something else" if problems else ""
        raise ReportError(
            f"{source} holds neither a result.json nor results of the benchmark{others}: name the folder that "
            "potion heal --out or potion bench run --results wrote to"
        )
    # Files of other kinds lie beside results by intention, damaged ones do not.
    broken = [f"not counted: {name}: {why}" for name, why in problems.items() if not why.startswith("JSON, but not")]
    strangers = len(problems) - len(broken)
    kinds = (
        [f"{strangers} other JSON file{'s' * (strangers > 1)} there: not results of the benchmark"] if strangers else []
    )
    return Page(board_page(records, len(problems)), broken + kinds)


def _of_file(path: Path) -> Page:
    data = read_json(path)
    try:
        if is_demo(data):
            return Page(heal_page(headline(data)), [])
        if is_heal(data):
            return Page(heal_page(data, str(path.parent)), [])
        return Page(board_page([read_result(path)]), [])
    except ResultError:
        raise ReportError(
            f"{path} is JSON, but no result of potion: name the result.json of potion heal or potion demo, a result of "
            "potion bench, or a folder of them"
        ) from None
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None
