"""``tailrace demo --uri``: the same demo on a replica set that holds somebody's data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.demo.directory import Layout
from tailrace.demo.display import Display
from tailrace.demo.source import OWN_DATABASE, opened_source
from tailrace.errors import ConfigurationError
from tests.checkout import IMPORTS
from tests.mongod import ReplicaSet

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.integration


@pytest.fixture
def own(mongod: ReplicaSet) -> Iterator[ReplicaSet]:
    """A server with a database ``shop`` of somebody's, which is there at the end too."""
    with mongod.client() as client:
        client.drop_database("shop")  # other tests share the server
        client.shop.orders.insert_one({"_id": "mine"})
        yield mongod
        found = list(client.shop.orders.find())
        client.drop_database("shop")
        client.drop_database(OWN_DATABASE)
        assert found == [{"_id": "mine"}]


def demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", "demo", "--directory", str(directory), *arguments],
        env={**os.environ, "PYTHONPATH": IMPORTS, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_it_proves_the_same_and_leaves_nothing(own: ReplicaSet, tmp_path: Path) -> None:
    """In a database of its own, which is removed at the end; no server is started."""
    done = demo(tmp_path / "demo", "--events", "300", "--uri", own.uri)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"uses the database '{OWN_DATABASE}'" in done.stdout
    assert "The events give exactly the source" in done.stdout
    assert "The tables give exactly the source" in done.stdout
    assert f"current/{OWN_DATABASE}.orders" in done.stdout
    assert not (tmp_path / "demo" / "server").exists()
    with own.client() as client:
        assert OWN_DATABASE not in client.list_database_names()


def test_a_database_of_that_name_is_left_alone(own: ReplicaSet, tmp_path: Path) -> None:
    """It may be somebody's: exit code 2, one line, and nothing is written or removed."""
    with own.client() as client:
        client[OWN_DATABASE].notes.insert_one({"_id": 1})
        done = demo(tmp_path / "demo", "--uri", own.uri)
        assert done.returncode == 2
        assert f"the database '{OWN_DATABASE}' exists" in done.stderr
        assert "Traceback" not in done.stderr
        assert list(client[OWN_DATABASE].notes.find()) == [{"_id": 1}]
        assert client[OWN_DATABASE].list_collection_names() == ["notes"]


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
    display = Display(Console(file=StringIO()), 1)
    with pytest.raises(ConfigurationError, match=message) as raised:
        async with opened_source(uri, Layout(tmp_path), display):
            pass
    assert "--uri" in str(raised.value)
    assert "secret" not in str(raised.value)


async def test_a_failure_in_the_middle_leaves_nothing_either(
    own: ReplicaSet, tmp_path: Path
) -> None:
    """Whatever ends the block, the database is removed."""
    display = Display(Console(file=StringIO()), 1)
    with own.client() as client:

        async def fail() -> None:
            async with opened_source(own.uri, Layout(tmp_path), display) as source:
                client[source.database].orders.insert_one({})
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await fail()
        assert OWN_DATABASE not in client.list_database_names()
