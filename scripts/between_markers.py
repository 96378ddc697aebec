"""Tables inside hand-written pages: each between two markers that name it and the script which makes it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def put(page: str, script: str, tables: Mapping[str, str]) -> None:
    """Put tables into a page; with --check on the command line only exit by whether they are there already."""
    path = ROOT / page
    text = updated = path.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name}: scripts/{script} -->\n", f"<!-- end of {name} -->"
        before, rest = updated.split(begin)
        updated = before + begin + table + end + rest.split(end)[1]
    if "--check" in sys.argv:
        sys.exit(0 if updated == text else f"{page} is not up to date: python scripts/{script}")
    path.write_text(updated)
