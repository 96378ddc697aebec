"""Files are complete or not there."""

from __future__ import annotations

import json

import pytest

from potion.files import replacing, writable_folder, write_json


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})

    def fails(partial):
        partial.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        replacing(tmp_path / "a.json", fails)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_is_made_and_nothing_in_it_touched(tmp_path):
    folder = writable_folder(tmp_path / "new" / "folder")
    (folder / "probe").write_text("mine")
    writable_folder(folder)
    assert [entry.name for entry in folder.iterdir()] == ["probe"]
    with pytest.raises(OSError, match=r"cannot write to the folder .*probe"):
        writable_folder(folder / "probe")
