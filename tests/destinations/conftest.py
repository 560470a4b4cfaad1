"""The destinations of the contract suite, each with its real server."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from importlib import import_module

import pytest

from tailrace.testing import Changes
from tests.destinations import kafka
from tests.destinations.copying import Copying
from tests.destinations.destination import Destination, Make
from tests.destinations.postgresql_store import Store, store_of
from tests.orders import Orders

NAMES = ("postgresql", "mongodb", "redis", "nats", "http", "kafka", "kafka_once")
"""Modules beside this one. Kafka, whose server takes longest, comes last."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that wants a destination, and names none, is run with each of them."""
    named = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "kind" in metafunc.fixturenames and "kind" not in named:
        metafunc.parametrize("kind", NAMES, scope="session")


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[[str], Make]]:
    """The server of a type, by its name; it is started once."""
    with ExitStack() as stack:

        @cache
        def serve(name: str) -> Make:
            make: Make = stack.enter_context(import_module(f"tests.destinations.{name}").serve())
            return make

        yield serve


@pytest.fixture
def destination(kind: str, served: Callable[[str], Make], database: str) -> Iterator[Destination]:
    """In the form that keeps the last state of each document, if it has one; runs at the end."""
    made = served(kind)(database)
    yield made
    made.start()


@pytest.fixture
def log(kind: str, served: Callable[[str], Make], database: str) -> Iterator[Destination]:
    """In the form that keeps each message, if it has two; runs at the end."""
    made = served(kind)(database, log=True)
    yield made
    made.start()


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
def topics(served: Callable[[str], Make], database: str) -> kafka.Kafka:
    """Kafka's server, and the topics of this test: ``{prefix}.shop.orders``."""
    found = served("kafka")(database)
    assert isinstance(found, kafka.Kafka)
    return found


@pytest.fixture
async def store(served: Callable[[str], Make], database: str) -> AsyncIterator[Store]:
    """A database of PostgreSQL for handlers in this process."""
    async with store_of(served, database) as found:
        yield found


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def target(served: Callable[[str], Make], database: str) -> Iterator[Destination]:
    """The mirror of the destination ``mongodb``; its server runs at the end."""
    made = served("mongodb")(database)
    yield made
    made.start()


@pytest.fixture
def outbox(served: Callable[[str], Make], database: str) -> Iterator[Destination]:
    """The outbox of the destination ``mongodb``; its server runs at the end."""
    made = served("mongodb")(database, log=True)
    yield made
    made.start()
