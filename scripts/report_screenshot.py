"""Photograph the page of a heal, for the README: docs/images/report.png.

    python scripts/report_screenshot.py healed/report.html      # after docs/quick_start.md, with --clean and --triggered

Needs chromium, and nothing else that potion does not need itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs/images/report.png"
WIDTH, HEIGHT = 1040, 1500
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-sync")


def main() -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if browser is None:
        sys.exit("no chromium here: apt-get install chromium")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(sys.argv[1]).resolve(), Path(folder, "shot.png")
        size = f"--window-size={WIDTH},{HEIGHT}"
        subprocess.run([browser, *FLAGS, size, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True)
        Image.open(shot).convert("RGB").quantize(128).save(PICTURE, optimize=True)  # flat colours: a palette is enough
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
