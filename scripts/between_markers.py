"""Tables inside hand-written pages: each between two markers that name it and the script which makes it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def put(script: str, pages: Mapping[str, Mapping[str, str]]) -> None:
    """Put tables into pages; with --check on the command line only exit by whether they are there already."""
    stale = []
    for page, tables in pages.items():
        path = ROOT / page
        text = updated = path.read_text()
        for name, table in tables.items():
            begin, end = f"<!-- {name}: scripts/{script} -->\n", f"<!-- end of {name} -->"
            before, rest = updated.split(begin)
            updated = before + begin + table + end + rest.split(end)[1]
        if updated != text:
            stale.append(page)
            if "--check" not in sys.argv:
                path.write_text(updated)
    if stale and "--check" in sys.argv:
        sys.exit(f"{', '.join(stale)}: not up to date: python scripts/{script}")
