"""Where a figure comes from: the code is found again, also where it was not committed yet."""

from __future__ import annotations

import subprocess

import pytest
import torch

from potion.provenance import _commit, _tree, machine


@pytest.fixture
def checkout(tmp_path):
    """A repository with a package in it, and a function that runs git there."""

    def git(*arguments):
        identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    package = tmp_path / "inside" / "package"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    (package / "part" / "more.py").write_text("two = 2\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "beside.py").write_text("three = 3\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    _commit.cache_clear()
    _tree.cache_clear()
    return package, git


def test_code_of_a_commit_names_it_and_its_tree(checkout):
    package, git = checkout
    (package / "made.log").write_text("ignored\n")
    assert _commit(package) == git("rev-parse", "HEAD")
    assert _tree(package) == git("rev-parse", "HEAD:inside/package")


def test_code_that_was_not_committed_yet_is_found_by_its_tree_afterwards(checkout):
    package, git = checkout
    (package / "part" / "new.py").write_text("four = 4\n")
    (package / "__init__.py").write_text("one = 10\n")
    before = git("count-objects")
    then = _tree(package)
    assert _commit(package) == git("rev-parse", "HEAD") + "+"
    assert git("count-objects") == before, "the repository is left as it is"
    assert "?? inside/package/part/new.py" in git("status", "--porcelain")
    git("add", "-A")
    git("commit", "-qm", "second")
    assert then == git("rev-parse", "HEAD:inside/package")


def test_code_outside_a_checkout_or_in_somebody_elses_has_no_commit(checkout, tmp_path_factory):
    package, _ = checkout
    installed = package.parent / "installed"
    installed.mkdir()
    (installed / "__init__.py").write_text("")
    for folder in (installed, tmp_path_factory.mktemp("nowhere")):
        assert _commit(folder) is None
        assert _tree(folder) is None


def test_a_machine_is_told_without_names_and_paths():
    told = machine(torch.device("cpu"))
    assert {"time", "versions", "commit", "tree", "device", "threads"} == told.keys()
    assert "/" not in str(told)
