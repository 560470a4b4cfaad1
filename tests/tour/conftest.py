"""What every test of the tour uses."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.collection import Collection

from tests.daemon import Daemon
from tests.orders import Orders


@pytest.fixture
def shop(orders: Orders) -> Iterator[Collection[dict[str, Any]]]:
    """A collection on a real server that no other test uses."""
    with orders.server.client() as client:
        yield client[orders.database].orders


@pytest.fixture
def tailrace(orders: Orders) -> Daemon:
    """The service as a process, configured to write its events to ``events.jsonl``."""
    return orders.daemon()
