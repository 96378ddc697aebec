"""What the docs tell new users to type works as it stands there: the quick start, the examples, the notebook."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from typer.testing import CliRunner

from potion.cli import app

ROOT = Path(__file__).parent.parent


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """A copy of the examples' scripts, importable, and the folder above it, where the user is."""
    folder = tmp_path / "examples"
    folder.mkdir()
    for script in (ROOT / "examples").glob("*.py"):
        shutil.copy(script, folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    return folder


def run(words, monkeypatch, capsys):
    """One command of a shell, in this process where that is possible; what it printed."""
    if words[0] == "cd":
        monkeypatch.chdir(words[1])
        return ""
    if words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
        return capsys.readouterr().out
    if words[0] == "potion":
        done = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def commands(page):
    """The lines of the blocks that are marked as such."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def better(record):
    before, after = record["scores"]["before"], record["scores"]["after"]
    assert before["attack_success_rate"] > 60
    assert after["attack_success_rate"] < before["attack_success_rate"] / 2
    assert after["clean_accuracy"] > before["clean_accuracy"] / 3, (
        "not everything is one class; victims of six epochs are fragile, and other machines round otherwise"
    )


def test_the_quick_start(examples, monkeypatch, capsys):
    printed = [run(words, monkeypatch, capsys) for words in commands(ROOT / "docs" / "quick_start.md")]
    better(json.loads((examples / "healed" / "result.json").read_text()))
    assert "Healed" in (examples / "healed" / "report.html").read_text()
    typed, told = commands(ROOT / "docs" / "quick_start.md")[3], shlex.split(printed[1])
    assert typed == told, "the script prints what the page shows"
    original, undone = (line.split()[0] for line in printed[-1].splitlines())
    assert original == undone, "to the last bit"


@pytest.mark.parametrize("script", ["timm_model", "lightning_checkpoint"])
def test_the_examples_print_the_command_that_heals_them(examples, monkeypatch, capsys, script):
    monkeypatch.chdir(examples)
    command = shlex.split(run(["python", f"{script}.py"], monkeypatch, capsys).splitlines()[-1])
    run(command, monkeypatch, capsys)
    better(json.loads((Path(command[-1]) / "result.json").read_text()))


def test_the_notebook(tmp_path):
    notebook = nbformat.read(ROOT / "examples" / "heal.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells), "outputs do not belong into git"
    done = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    last = done.cells[-1].outputs[-1]
    assert "True" in last["data"]["text/plain"], "undone, it is the victim again"
