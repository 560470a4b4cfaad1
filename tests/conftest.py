"""What every suite shares: the real mongod, the scripted server, and the service as a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.daemon import Daemon
from tests.mongod import ReplicaSet, Standalone
from tests.scripted import ScriptedSet


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands that a test calls in this process configure logging: no other test shall see it."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """One server process for all tests that only write to it; they use databases of their own."""
    server = ReplicaSet(tmp_path_factory.mktemp("mongod"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def one_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """The process of :func:`mortal`."""
    server = ReplicaSet(tmp_path_factory.mktemp("one_member"))
    yield server
    server.stop()


@pytest.fixture
def mortal(one_member: ReplicaSet) -> Iterator[ReplicaSet]:
    """One member that tests may kill or hold; it runs again at each test's end."""
    yield one_member
    one_member.start()


@pytest.fixture(scope="session")
def three_members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """The processes of :func:`replica_set`."""
    server = ReplicaSet(tmp_path_factory.mktemp("three_members"), members=3)
    yield server
    server.stop()


@pytest.fixture
def replica_set(three_members: ReplicaSet) -> Iterator[ReplicaSet]:
    """Three members for all tests of elections and crashes; all three run at each test's end."""
    yield three_members
    three_members.start()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A server that demands credentials; each test makes the users that it needs."""
    server = ReplicaSet(tmp_path_factory.mktemp("guarded"), login=("root", "right"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A server without a replica set, which has no change streams."""
    server = Standalone(tmp_path_factory.mktemp("standalone"))
    yield server
    server.stop()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a database that no other test has, dropped at the end from the test's server."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    yield name
    for server in {"mongod", "mortal", "replica_set"} & set(request.fixturenames):
        with request.getfixturevalue(server).client() as client:
            client.drop_database(name)


@pytest.fixture
def scripted() -> Iterator[ScriptedSet]:
    """A scripted replica set of one member."""
    with ScriptedSet() as server:
        yield server


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons below the test's directory; whatever still runs at the end is killed."""
    made: list[Daemon] = []

    def make(uri: str, directory: str = "run", **sections: Any) -> Daemon:
        made.append(Daemon(tmp_path / directory, uri, **sections))
        return made[-1]

    yield make
    for each in made:
        each.kill()
