"""Fixtures of the contract suites."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.drivers import command_driver
from tailrace.stores.sqlite import open_store
from tests.contract.stores import (
    Backing,
    MemoryBacking,
    MongoBacking,
    SqliteBacking,
    checkpoint,
    letter,
)
from tests.faults import disk
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
    with disk.small_disk(tmp_path / "disk", "1m") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        yield tmp_path / "disk"
