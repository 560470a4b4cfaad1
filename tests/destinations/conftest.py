"""The destinations of the contract suite, each with its real server."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache, partial
from importlib import import_module
from typing import Any

import psycopg
import pytest

from tailrace.testing import Changes
from tests.destinations.copying import Copying
from tests.destinations.destination import NAMES, Destination, Make
from tests.destinations.postgresql_store import Store
from tests.orders import Orders


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that wants a destination, and names none, is run with each of them."""
    named = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "kind" in metafunc.fixturenames and "kind" not in named:
        metafunc.parametrize("kind", NAMES, scope="session")


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[[str], Make]]:
    """The server of a type, by its name; it is started once, for both types of Kafka."""
    with ExitStack() as stack:

        @cache
        def serve(name: str) -> Any:
            if name == "kafka_once":
                return partial(serve("kafka"), once=True)
            return stack.enter_context(import_module(f"tests.destinations.{name}").serve())

        yield serve


@pytest.fixture
def made(served: Callable[[str], Make], database: str) -> Iterator[Callable[..., Any]]:
    """Makes destinations of this test, each by its name; their servers run at the end."""
    found: list[Destination] = []

    def make(name: str, *, log: bool = False) -> Destination:
        found.append(served(name)(database, log=log))
        return found[-1]

    yield make
    for each in found:
        each.start()


@pytest.fixture
def destination(kind: str, made: Callable[..., Any]) -> Any:
    """In the form that keeps the last state of each document, if it has one."""
    return made(kind)


@pytest.fixture
def log(kind: str, made: Callable[..., Any]) -> Any:
    """In the form that keeps each message, if it has two."""
    return made(kind, log=True)


@pytest.fixture
def copied(orders: Orders, destination: Destination) -> Iterator[Copying]:
    """A collection that is copied to a destination of the last states."""
    with closing(Copying(orders, destination)) as copying:
        yield copying


@pytest.fixture
def logged(orders: Orders, log: Destination) -> Iterator[Copying]:
    """A collection whose changes go to a destination that keeps each."""
    with closing(Copying(orders, log)) as copying:
        yield copying


@pytest.fixture
def topics(made: Callable[..., Any]) -> Any:
    """Kafka's server, and the topics of this test: ``{prefix}.shop.orders``."""
    found = made("kafka")
    found.server.settle()
    return found


@pytest.fixture
async def store(made: Callable[..., Any]) -> AsyncIterator[Store]:
    """A database of PostgreSQL for handlers in this process."""
    found = Store(made("postgresql"))
    yield found
    await found.closed()


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def rows(destination: Any) -> Iterator[psycopg.Connection]:
    """A connection to the database of PostgreSQL, to change rows by hand."""
    with psycopg.connect(destination.dsn, autocommit=True, connect_timeout=60) as connection:
        yield connection


@pytest.fixture
def target(made: Callable[..., Any]) -> Any:
    """The mirror of the destination ``mongodb``."""
    return made("mongodb")


@pytest.fixture
def outbox(made: Callable[..., Any]) -> Any:
    """The outbox of the destination ``mongodb``."""
    return made("mongodb", log=True)
