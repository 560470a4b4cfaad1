"""Fixtures of all suites: real servers, the scripted server, and the service as a process."""

import compileall
import gc
import logging
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from socket import socket
from typing import Any
from uuid import uuid4

import hypothesis
import pytest
import structlog

from tailrace.demo.programs import require_java
from tailrace.errors import ConfigurationError
from tests.collection import pytest_collection as pytest_collection
from tests.collection import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.collection import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from tests.daemon import Daemon, Make
from tests.mongod import ReplicaSet, Standalone, program
from tests.orders import Orders
from tests.packages import install_for_demo
from tests.postgresql import PostgreSQL, postgresql
from tests.scratch import MakeDirectory, owned
from tests.scripted import ScriptedSet

TESTS = Path(__file__).parent

# No deadline: an example may be slow when several processes run tests at the same time.
hypothesis.settings.register_profile("tailrace", deadline=None, max_examples=50)
hypothesis.settings.load_profile("tailrace")


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the service once, or each of the hundreds of processes does where Python may not
    write byte code (``PYTHONDONTWRITEBYTECODE``): 0.7 s of CPU time."""
    if not hasattr(config, "workerinput"):  # of xdist
        compileall.compile_dir(TESTS.parent / "service", quiet=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skipped test counts as a failure where ``CI`` is set."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI runs everything: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Resets the logging that a command configured in this process, before the next test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    shows = warnings.showwarning
    yield
    warnings.showwarning = shows
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def session_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeDirectory]:
    """Creates directories that are removed at the end, also if a test failed."""
    made: list[Path] = []

    def make(name: str) -> Path:
        made.append(tmp_path_factory.mktemp(name))
        return made[-1]

    yield make
    for directory in made:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def owned_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Removes what runs that were cut off left, and lets a later run do so for this one."""
    run = tmp_path_factory.getbasetemp()
    with owned(run.parent if "PYTEST_XDIST_WORKER" in os.environ else run):
        yield


@pytest.fixture
def abandoned_connects() -> Iterator[None]:
    """Collects the sockets that PyMongo's asyncio client leaked, within the test that leaked them.

    PyMongo 4.20 leaves a socket to the garbage collector if the client is closed while a monitor
    connects, for example to a dead address. The warning would otherwise fail a later test.
    """
    yield
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def abandoned_by_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same at the end of a module whose tests have clients in this process.

    On a busy machine a monitor may also be connecting to a live server when its client is closed.
    """
    yield
    if {"contract", "integration"} & set(request.path.relative_to(TESTS).parts):
        hook = sys.unraisablehook
        sys.unraisablehook = lambda each: None if isinstance(each.object, socket) else hook(each)
        gc.collect()
        sys.unraisablehook = hook


@pytest.fixture(scope="session")
def mongod(session_directory: MakeDirectory) -> Iterator[ReplicaSet]:
    """One server process for all tests that only write to it, each in a database of its own."""
    server = ReplicaSet(session_directory("mongod"))
    yield server
    server.stop(signal.SIGKILL)


# A server that idles uses 1 % of a core, in each process that runs tests. Only that which most
# modules use lives for longer than a module.


@pytest.fixture(scope="module")
def one_member(session_directory: MakeDirectory) -> Iterator[ReplicaSet]:
    """The server process of :func:`mortal`."""
    server = ReplicaSet(session_directory("one_member"))
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def mortal(one_member: ReplicaSet) -> Iterator[ReplicaSet]:
    """A one-member set that tests may kill or suspend; it runs again at the end of each test."""
    yield one_member
    one_member.start()


@pytest.fixture(scope="module")
def three_members(session_directory: MakeDirectory) -> Iterator[ReplicaSet]:
    """The server processes of :func:`replica_set`."""
    server = ReplicaSet(session_directory("three_members"), members=3)
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def replica_set(three_members: ReplicaSet) -> Iterator[ReplicaSet]:
    """Three members for tests of elections and crashes; all three run at the end of each test."""
    yield three_members
    three_members.start()


@pytest.fixture(scope="module")
def small(session_directory: MakeDirectory) -> Iterator[ReplicaSet]:
    """A server that forgets soon: what is older than its last checkpoint may go each second."""
    flags = {"--oplogSize": "1", "--syncdelay": "1"}
    server = ReplicaSet(session_directory("small"), flags=flags)
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def guarded_server(session_directory: MakeDirectory) -> Iterator[ReplicaSet]:
    server = ReplicaSet(session_directory("guarded"), login=("root", "right"))
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def guarded(guarded_server: ReplicaSet) -> Iterator[ReplicaSet]:
    """A server that demands credentials. Each test creates the users and roles that it needs, and
    they go with it: a test that is run again creates them again."""
    yield guarded_server
    with guarded_server.client() as client:
        for user in client.admin.command("usersInfo", {"forAllDBs": True})["users"]:
            if user["user"] != "root":
                client[user["db"]].command("dropUser", user["user"])
        client.admin.command("dropAllRolesFromDatabase")


@pytest.fixture(scope="module")
def standalone(session_directory: MakeDirectory) -> Iterator[Standalone]:
    """A server without a replica set, which has no change streams."""
    server = Standalone(session_directory("standalone"))
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def one_postgresql() -> Iterator[PostgreSQL]:
    """One PostgreSQL for all tests of destinations; a test that stops it starts it again."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def java() -> None:
    """A Java for Spark: an installed one, or else the system's package, which this installs."""
    try:
        require_java()
    except ConfigurationError:
        install_for_demo()
        require_java()


@pytest.fixture(scope="session")
def mongod_program() -> Path:
    """A mongod that runs on this machine, for tests in which the service starts it."""
    return program()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a database that no other test uses, nor another try of this one.

    It is dropped from the test's server at the end.
    """
    name = f"t{uuid4().int % 10**12}"
    yield name
    for server in {"mongod", "mortal", "replica_set"} & set(request.fixturenames):
        with request.getfixturevalue(server).client() as client:
            client.drop_database(name)
            client.drop_database(f"{name}_store")  # of replicas


@pytest.fixture
def scripted() -> Iterator[ScriptedSet]:
    """A scripted replica set of one member."""
    with ScriptedSet() as server:
        yield server


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Creates daemons below the test's directory, and kills those still running at the end.

    None of them may have begun a coroutine that nobody awaits, which Python only warns of. Where a
    handler has ended the event loop, tasks are cancelled that have not begun.
    """
    made: list[Daemon] = []

    def make(uri: str, directory: str = "run", **sections: Any) -> Daemon:
        made.append(Daemon(tmp_path / directory, uri, **sections))
        return made[-1]

    yield make
    for each in made:
        each.kill()
    for each in made:
        if "a handler has ended the process" not in each.log:
            assert "was never awaited" not in each.log, each.log


@pytest.fixture
def orders(mongod: ReplicaSet, database: str, daemon: Make) -> Orders:
    """The collection ``orders`` on the shared server; a module may override the server."""
    return Orders(mongod, database, daemon)
