"""Fixtures of the contract suites."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.drivers import command_driver
from tailrace.stores.sqlite import open_store
from tests.contract.sqlite_files import Remount
from tests.contract.stores import (
    Backing,
    MemoryBacking,
    MongoBacking,
    SqliteBacking,
    checkpoint,
    letter,
)
from tests.mongod import ReplicaSet


@pytest.fixture(scope="session")
def server(mongod: ReplicaSet) -> str:
    """The URI of a real server for a store's client, which notices faults soon."""
    return mongod.uri + "&heartbeatFrequencyMS=500"


@pytest.fixture
def quick_closing(monkeypatch: pytest.MonkeyPatch) -> float:
    """Shortens how long a closing driver waits for killCursors and endSessions."""
    monkeypatch.setattr(command_driver, "KILL_SECONDS", 0.25)
    return 0.25


@pytest.fixture(params=["memory", "sqlite", pytest.param("mongodb", marks=pytest.mark.integration)])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    """Each kind of store in turn, empty."""
    if request.param == "memory":
        return MemoryBacking()
    if request.param == "sqlite":
        return SqliteBacking(tmp_path / "deep" / "tailrace.db")
    database = request.getfixturevalue("database")
    return MongoBacking(request.getfixturevalue("server"), database)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tailrace.db"


@pytest.fixture
async def written(path: Path) -> Path:
    """A closed store with forty scopes and a dead letter."""
    async with open_store(path) as store:
        for number in range(40):
            await store.checkpoints.save(checkpoint(f"scope-{number:02}", fingerprint="f" * 200))
        await store.dead_letters.add(letter(), 1)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; needs the right to mount."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


@pytest.fixture
def remount(small_disk: Path) -> Remount:
    """Remounts the small disk with another option, ``ro`` or ``rw``."""

    def run(option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", str(small_disk)], check=True)

    return run
