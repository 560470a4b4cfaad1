"""A small disk for one test, and a database as a destination."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import small_disk
from tests.orders import Orders
from tests.postgresql import PostgreSQL
from tests.replicas import Replicas
from tests.shop import Shop


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        yield tmp_path / "disk"


@pytest.fixture
def shop(orders: Orders, one_postgresql: PostgreSQL) -> Iterator[Shop]:
    """A database of PostgreSQL for one test; the server runs at the end."""
    yield Shop(orders, one_postgresql)
    one_postgresql.start()


@pytest.fixture
def replicas(orders: Orders, tmp_path: Path, request: pytest.FixtureRequest) -> Replicas:
    """Processes with a shared store: SQLite, or MongoDB if the test's parameter says so.

    The contract suite compares the stores: most behaviours need only one of them.
    """
    if getattr(request, "param", "sqlite") == "mongodb":
        return Replicas(orders)
    return Replicas(orders, {"type": "sqlite", "path": str(tmp_path / "shared.db")})
