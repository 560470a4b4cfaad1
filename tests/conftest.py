"""What every suite shares: the embedded server, the scripted one, and the service as a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.daemon import Daemon
from tests.embedded import Embedded
from tests.scripted import ScriptedSet


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands that a test calls in this process configure logging: no other test shall see it."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """One server process for all tests that only write to it; they use databases of their own."""
    server = Embedded(tmp_path_factory.mktemp("secantus"))
    yield server
    server.stop()


@pytest.fixture
def database(embedded: Embedded, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a database that no other test has, dropped at the end."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    yield name
    with embedded.client() as client:
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
