"""Files are complete or not there."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from victim import full_disk

from potion.files import check_writable, replacing, writable_folder, write_json


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
    with pytest.raises(OSError, match=r"cannot write to the folder .*probe"):
        check_writable(folder / "probe" / "below")
    check_writable(folder / "not" / "made")
    assert [entry.name for entry in folder.iterdir()] == ["probe"]


@pytest.mark.parametrize("save", [torch.save, save_file])
def test_a_full_disk_is_an_error_of_the_system_whoever_writes(tmp_path, save):
    with full_disk(), pytest.raises(OSError, match=r"cannot write a\.bin: .*(no space left|File too large)"):
        replacing(tmp_path / "a.bin", lambda partial: save({"a": torch.zeros(9_000)}, partial))
    assert list(tmp_path.iterdir()) == []
