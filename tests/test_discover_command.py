"""``potion discover``: the list, the sheet, and what is refused."""

from __future__ import annotations

import csv

from PIL import Image
from typer.testing import CliRunner
from victim import KNOWN, POISON, arguments

from potion.cli import app


def discover(code=0, **changed):
    words = arguments(**{"method": "xlf", "out": "suspects.csv", **changed})
    done = CliRunner().invoke(app, ["discover", *words[1:]], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_the_other_poison_is_at_the_top_of_the_list(case_on_disk, monkeypatch, tmp_path):
    monkeypatch.chdir(case_on_disk)
    done = discover(out=tmp_path / "suspects.csv")
    rows = list(csv.DictReader((tmp_path / "suspects.csv").read_text().splitlines()))
    listed = set((case_on_disk / "poison.txt").read_text().splitlines())
    assert not listed & {row["name"] for row in rows}, "known samples are no suspects"
    assert len({row["label"] for row in rows}) == 1
    moved = [row["label"] != row["believed"] for row in rows]
    hidden = POISON - KNOWN
    assert all(moved[: hidden // 2])
    assert not any(moved[2 * hidden :])
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    with Image.open(tmp_path / "suspects.png") as sheet:
        assert sheet.width == 960
    assert f"of {len(rows)} samples" in done.output


def test_nothing_is_written_over(case_on_disk, monkeypatch, tmp_path):
    monkeypatch.chdir(case_on_disk)
    (tmp_path / "suspects.csv").write_text("mine")
    done = discover(2, out=tmp_path / "suspects.csv")
    assert "is there already; --force writes over it" in done.output
    assert (tmp_path / "suspects.csv").read_text() == "mine"
    assert "--model is missing" in discover(2, model=None, out=tmp_path / "new.csv").output
