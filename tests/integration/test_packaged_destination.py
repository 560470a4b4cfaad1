"""The destination of docs/handlers.md, in a package of its own, in the service as a process."""

import hmac
import sqlite3
from contextlib import closing

import pytest

from tests import added_types
from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders


@pytest.fixture
def run(orders: Orders) -> Daemon:
    """It has the handlers ``it``, the documented one, and ``file``."""
    it = {"type": "archive", "path": "archive.db", "key": {"file": "key"}, "max_bytes": 1000}
    run = orders.daemon(
        scope={"full_document": "lookup"},
        handlers={
            "it": {**it, "on_failure": "dead_letter"},
            "file": {"type": "jsonl", "path": "events.jsonl"},
        },
        routes=[{"scope": "orders", "handlers": ["it", "file"]}],
        http={"port": free_port()},
    )
    added_types.install_documented(run.directory)
    (run.directory / "key").write_text("the-first-key")
    run.configured()
    return run


def signed(run: Daemon) -> dict[str, str]:
    """The signatures by document, as JSON."""
    with closing(sqlite3.connect(run.directory / "archive.db", timeout=5)) as db:
        return dict(db.execute("SELECT document, signature FROM documents"))


def signature(key: str, document: str) -> str:
    return hmac.digest(key.encode(), document.encode(), "sha256").hex()


def test_a_destination_of_another_package_is_like_those_in_the_box(
    orders: Orders, run: Daemon
) -> None:
    """It is listed and tried, waits alone in an outage, sets aside, sweeps, and reads its secret
    again; nothing shows that."""
    assert "tailrace-archive 1.0" in run.command("handlers")
    orders.insert(0)
    checked = run.command("check", "--connect")
    assert "handler it: archive.db can be created" in checked
    assert not (run.directory / "archive.db").exists()
    run.start()
    orders.insert(1, 2)
    until(lambda: len(signed(run)) == 2, "two documents")
    document = '{"_id": 1}'
    assert signed(run)[document] == signature("the-first-key", document)

    with closing(sqlite3.connect(run.directory / "archive.db")) as db:
        db.execute("BEGIN EXCLUSIVE")
        (run.directory / "key").write_text("the-second-key")
        orders.insert(3)
        until(lambda: run.metric("tailrace_destination_up", handler="it") == 0, "the outage")
        run.until_events(3)
        assert "database is locked" in run.status()["reason"]
    until(lambda: len(signed(run)) == 3, "the document of the outage")
    document = '{"_id": 3}'
    assert signed(run)[document] == signature("the-second-key", document)

    orders.insert(4, text="x" * 2000)
    orders.insert(5)
    until(lambda: len(signed(run)) == 4, "the document after the refused one")
    assert "it has 20" in run.command("dead-letters", "list")

    with closing(sqlite3.connect(run.directory / "archive.db", timeout=5)) as db, db:
        stray = (
            f"SELECT scope, x'00', '{orders.database}', 'orders', 'stray', '', '' FROM documents"
        )
        db.execute(f"INSERT INTO documents {stray} LIMIT 1")
    run.command("snapshot", "start", "orders")
    until(lambda: run.logged("snapshot.done"), "the end of the snapshot")
    assert sorted(signed(run)) == [f'{{"_id": {number}}}' for number in (0, 1, 2, 3, 5)]
    assert run.stop() == 0, run.log
    assert "-key" not in run.log + checked
