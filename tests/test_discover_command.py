"""``potion discover``: the list, the sheet, and what is refused."""

from __future__ import annotations

import csv

import pytest
from PIL import Image
from typer.testing import CliRunner
from victim import KNOWN, POISON, arguments, full_disk, refused

from potion.cli import app


def discover(code=0, **changed):
    words = arguments(**{"method": "xlf", "out": "suspects.csv", **changed})
    done = CliRunner().invoke(app, ["discover", *words[1:]], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_the_other_poison_is_at_the_top_of_the_list(case_on_disk, monkeypatch, tmp_path):
    monkeypatch.chdir(case_on_disk)
    done = discover(out=tmp_path / "suspects.csv")
    assert b"\r" not in (tmp_path / "suspects.csv").read_bytes()
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


def test_what_is_read_is_never_written_over(tmp_path):
    (tmp_path / "known.txt").write_text("17\n")
    done = discover(2, out=tmp_path / "known.txt", known=tmp_path / "known.txt", force=True, data=tmp_path / "nothing")
    refused(done, "is read by this command; choose another name")
    assert (tmp_path / "known.txt").read_text() == "17\n"


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("x.png", "its picture would have the same name: call it x.csv"),
        ("x.PNG", "call it x.csv"),
        ("", "is a folder: name a file, like"),
        ("file/x.csv", "cannot write to the folder"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_the_work(tmp_path, out, words):
    """There is not even data here: it would be missed later."""
    (tmp_path / "file").write_text("mine")
    refused(discover(2, out=tmp_path / out, force=True, data=tmp_path / "nothing"), words)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_on_a_full_disk_there_is_neither_list_nor_picture(case_on_disk, monkeypatch, tmp_path):
    monkeypatch.chdir(case_on_disk)
    with full_disk():
        refused(discover(2, out=tmp_path / "new" / "suspects.csv", quiet=True), "cannot write", "File too large")
    assert list(tmp_path.iterdir()) == []
    discover(out=tmp_path / "suspects.csv", quiet=True)
    assert (tmp_path / "suspects.csv").stat().st_size < 10_000 < (tmp_path / "suspects.png").stat().st_size


def test_a_model_that_fails_is_one_sentence(case_on_disk, monkeypatch, tmp_path):
    for name, error in (("cuda", "RuntimeError"), ("odd", "LookupError")):
        (tmp_path / f"fails_{name}.py").write_text(
            "import owners_code\n"
            "class Fails(owners_code.nn.Sequential):\n"
            "    def forward(self, x):\n"
            f"        if len(x) > 1: raise {error}('out of memory')\n"
            "        return super().forward(x)\n"
            "def make(): return Fails(*owners_code.make())\n"
        )
        monkeypatch.chdir(case_on_disk)
        monkeypatch.syspath_prepend(case_on_disk)
        monkeypatch.syspath_prepend(tmp_path)
        refused(discover(2, model=f"fails_{name}:make", out=tmp_path / "new.csv"), "out of memory")
