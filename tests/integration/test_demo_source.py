"""``tailrace demo --uri``: what is refused, and what is removed, on a server of one's own."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.demo.display import Display
from tailrace.demo.source import OWN_DATABASE, Source, opened_source
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError
from tests.mongod import Client, ReplicaSet

pytestmark = pytest.mark.integration


@pytest.fixture
def client(mongod: ReplicaSet) -> Iterator[Client]:
    with mongod.client() as client:
        yield client
        client.drop_database(OWN_DATABASE)


async def use(uri: str, tmp_path: Path) -> None:
    """A demo that writes something, and fails."""
    async with opened_source(uri, Layout(tmp_path), Display(Console(file=StringIO()), 1)) as source:
        assert source == Source(uri, OWN_DATABASE)
        raise RuntimeError


async def test_the_database_is_removed_when_the_demo_fails(
    client: Client, mongod: ReplicaSet, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError):
        await use(mongod.uri, tmp_path)
    assert OWN_DATABASE not in client.list_database_names()


async def test_a_database_of_that_name_is_left_alone(
    client: Client, mongod: ReplicaSet, tmp_path: Path
) -> None:
    """It may hold other data: nothing is written or removed."""
    client[OWN_DATABASE].notes.insert_one({"_id": 1})
    with pytest.raises(ConfigurationError, match=f"the database '{OWN_DATABASE}' exists"):
        await use(mongod.uri, tmp_path)
    assert list(client[OWN_DATABASE].notes.find()) == [{"_id": 1}]


@pytest.mark.usefixtures("abandoned_connects")
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("localhost:27017", "is not a URI of MongoDB"),
        ("mongodb://", "is not a URI of MongoDB"),
        ("mongodb://u:secret@127.0.0.1:1/?serverSelectionTimeoutMS=200", "cannot be used"),
    ],
)
async def test_a_uri_that_leads_nowhere_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, message: str
) -> None:
    """It names the argument, and shows no password."""
    monkeypatch.setattr("tailrace.demo.source.SELECTION_SECONDS", 0.2)
    with pytest.raises(ConfigurationError, match=message) as raised:
        await use(uri, tmp_path)
    assert "--uri" in str(raised.value)
    assert "secret" not in str(raised.value)
