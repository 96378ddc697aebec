"""README and docs show what the committed results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("script", ["readme.py", "speed_docs.py"])
def test_tables_are_made_from_the_results(script):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
