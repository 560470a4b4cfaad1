"""A test's database on the shared server, for tests of snapshots."""

from collections.abc import Iterator

import pytest

from tests.mongod import ReplicaSet
from tests.snapshots import Scene


@pytest.fixture
def scene(mongod: ReplicaSet, database: str) -> Iterator[Scene]:
    with mongod.client() as client:
        yield Scene(mongod, client, database)
