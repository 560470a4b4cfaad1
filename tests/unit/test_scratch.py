"""What a run of the tests leaves on the disk."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.scratch import owned


@pytest.fixture
def ended() -> int:
    """The pid of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def left_by(root: Path, name: str, *owners: int) -> Path:
    """The directory of an earlier run, with a file and the marks of these processes."""
    run = root / name
    (run / "mongod").mkdir(parents=True)
    (run / "mongod" / "data").write_text("much")
    for owner in owners:
        (run / f"tailrace-owner-{owner}").touch()
    return run


def test_a_run_removes_what_a_run_that_was_cut_off_left(tmp_path: Path, ended: int) -> None:
    left = left_by(tmp_path, "cut-off", ended)
    run = left_by(tmp_path, "now")
    with owned(run):
        assert not left.exists()
        assert run.exists()


def test_a_run_leaves_alone_what_is_in_use_or_not_its_own(tmp_path: Path, ended: int) -> None:
    """One process of the other run may have been killed while the rest goes on."""
    kept = [
        left_by(tmp_path, "in use", ended, os.getpid()),
        left_by(tmp_path, "failed"),
        left_by(tmp_path, "of somebody else"),
    ]
    with owned(left_by(tmp_path, "now")):
        assert all(each.exists() for each in kept)


def test_a_run_that_ends_itself_leaves_no_mark(tmp_path: Path) -> None:
    run = left_by(tmp_path, "now")
    with owned(run):
        assert len(list(run.iterdir())) == 2
    assert [each.name for each in run.iterdir()] == ["mongod"]
