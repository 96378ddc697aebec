"""The README shows what the committed results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_is_made_from_the_results():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/readme.py", "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
