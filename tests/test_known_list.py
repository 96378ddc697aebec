"""The known poison may be listed in several ways; what is not in the data is named."""

from __future__ import annotations

import io
import json
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from potion.data import FolderFiles, ParquetRows
from potion.repair.known import known_from


def png(value=0):
    buffer = io.BytesIO()
    Image.fromarray(np.full((2, 2), value, np.uint8)).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture
def images(tmp_path):
    for name in ("ape/1.png", "ape/only.png", "bee/1.png", "bee/2.png"):
        (tmp_path / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / name).write_bytes(png())
    return FolderFiles(tmp_path / "train")


LISTS = {
    "names.txt": "bee/1.png\n\n# a comment\n  only.png  \n",
    "mixed.txt": "2\ntrain/ape/only.png\n",
    "dots.txt": "./bee/1.png\nbee/../ape/only.png\n",
    "bom.txt": "\ufeffbee/1.png\nonly.png",
    "bare.csv": "bee/1.png,0.9\nonly.png,0.8\n",
    "headed.csv": "score,File\n0.9,bee/1.png\n0.8,only.png\n",
    "numbers.csv": "index,label\n2,1\n1,0\n",
    "spreadsheet.csv": "file,note\nbee/1.png\nonly.png,seen twice\n,\n",
    "suspects.csv": "rank,index,name,poison\n1,2,bee/1.png,1\n2,1,ape/only.png,1\n3,3,bee/2.png,0\n",
    "quoted.txt": "'bee/1.png'\n\"only.png\"\n",
    "list.json": '[2, "ape/only.png"]',
}


@pytest.mark.parametrize("name", LISTS)
def test_every_kind_of_list(images, tmp_path, name):
    (tmp_path / name).write_text(LISTS[name], encoding="utf-8")
    assert known_from(str(tmp_path / name), images) == [2, 1]


def test_a_whole_path_and_plain_indices(images, tmp_path, monkeypatch):
    (tmp_path / "whole.txt").write_text(str(tmp_path / "train" / "bee" / "2.png"))
    assert known_from(str(tmp_path / "whole.txt"), images) == [3]
    assert known_from("3, 0", images) == [3, 0]
    with pytest.raises(ValueError, match=r"--known -1: .*index -1, but train_set has the indices 0 to 3"):
        known_from("-1", images)
    with pytest.raises(ValueError, match="the list is empty"):
        known_from("", images)
    with pytest.raises(ValueError, match="more than once"):  # and not that the name of a file is too long
        known_from(",".join(["1"] * 5000), images)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.txt").write_text("train/bee/2.png")
    assert known_from("here.txt", FolderFiles(tmp_path.relative_to(tmp_path) / "train")) == [3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.txt",
            "bee/1.png\ncat/9.png\n8.png\n7.png\n6.png\n",
            r"4 of 5 file names are not in the data: cat/9.png, 8.png",
        ),
        ("a.txt", "1.png\n", r"'1.png' could be .*ape/1.png and .*bee/1.png; write more of the path"),
        ("a.txt", "\n# nothing\n", r"the list is empty; name at least one"),
        ("a.txt", "4\n", r"index 4, but train_set has the indices 0 to 3"),
        ("a.txt", "-1\n", r"index -1"),
        ("a.txt", "2\nbee/1.png\n", r"names sample 2 more than once"),
        ("a.txt", "0\n1\n2\n3\n", r"names all 4 samples"),
        ("a.txt", "--5\n", r"--known .*a\.txt: 1 of 1 file names are not in the data: --5"),
        ("a.txt", "./\n0\n", r"1 of 2 file names are not in the data: \./"),
        ("a.json", '[""]', r"1 of 1 file names are not in the data: ''"),
        ("a.csv", "score,file\n0.9,bee/1.png\n0.8\n", r"line 3 names no sample: its file column is empty"),
        ("a.csv", "bee/1.png,0.9\n,0.8\n", r"line 2 names no sample: its first column is empty"),
        ("a.csv", "index,poison\n2,1\n1,yes\n", r"line 3 has 'yes' in the column poison; write 1 or 0"),
        ("a.csv", "index,poison\n2,0\n", r"the list is empty"),
        ("a.json", "[1, 2", r"not JSON"),
        ("a.json", '{"known": 1}', r"must be a JSON list"),
        ("a.json", "[1.5]", r"must be a JSON list"),
    ],
)
def test_a_wrong_list_says_what_is_wrong(images, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        known_from(str(tmp_path / name), images)


def test_a_list_may_come_through_a_pipe(images, tmp_path):
    """As ``--known <(grep ...)`` gives it."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("2\n",))
    writer.start()
    assert known_from(str(tmp_path / "pipe"), images) == [2]
    writer.join()
    with pytest.raises(FileNotFoundError, match="a folder; give"):
        known_from(str(tmp_path), images)


def test_what_is_no_list(images, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--known nothing.txt: no such file"):
        known_from("nothing.txt", images)
    (tmp_path / "picture.txt").write_bytes(png())
    with pytest.raises(ValueError, match="not a text file"):
        known_from(str(tmp_path / "picture.txt"), images)


def test_parquet_knows_names_where_they_are_stored(tmp_path):
    rows = [{"bytes": png(), "path": f"{name}.png"} for name in "abc"]
    pq.write_table(pa.table({"image": rows, "label": [0, 1, 0]}), tmp_path / "named.parquet")
    pq.write_table(pa.table({"image": [png()] * 3, "label": [0, 1, 0]}), tmp_path / "plain.parquet")
    (tmp_path / "list.json").write_text(json.dumps(["c.png"]))
    assert known_from(str(tmp_path / "list.json"), ParquetRows([tmp_path / "named.parquet"])) == [2]
    with pytest.raises(ValueError, match=r"'c.png' is a file name, but this data has none; list indices"):
        known_from(str(tmp_path / "list.json"), ParquetRows([tmp_path / "plain.parquet"]))
    assert known_from("2", ParquetRows([tmp_path / "plain.parquet"])) == [2]
