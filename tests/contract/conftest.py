"""Fixtures of the contract suites."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.drivers import commands
from tests.contract.stores import Backing, MemoryBacking, MongoBacking, SqliteBacking
from tests.mongod import ReplicaSet


@pytest.fixture(scope="session")
def server(mongod: ReplicaSet) -> str:
    """The URI of a real server for a store's client, which soon notices faults."""
    return mongod.uri + "&heartbeatFrequencyMS=500"


@pytest.fixture
def abandoned_connects() -> Iterator[None]:
    """Lets sockets go that PyMongo forgot, in the test whose warnings are not counted for it.

    Its asyncio client, closed while a monitor connects to a dead address, leaves the socket to
    the garbage collector (4.20). See `streams.ABANDONS_CONNECTS`.
    """
    yield
    gc.collect()


@pytest.fixture
def quick_closing(monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a driver's closing waits for kills and for its goodbye, made short."""
    monkeypatch.setattr(commands, "KILL_SECONDS", 0.25)
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
