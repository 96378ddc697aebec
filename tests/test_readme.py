"""README and docs show what the committed results say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("script", ["readme.py", "speed_docs.py", "antidote_docs.py", "differences.py"])
def test_tables_are_made_from_the_results(script):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_links_of_the_readme_lead_somewhere():
    """Those inside the docs are checked by ``mkdocs build --strict``."""
    for page in (ROOT / "README.md", ROOT / "examples" / "README.md"):
        links = re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"|`((?:docs|examples|scripts)/[\w./-]+)`", page.read_text())
        for link in filter(None, (part for match in links for part in match)):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{page.name}: {link}"
