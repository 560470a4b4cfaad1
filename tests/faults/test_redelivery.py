"""What comes again after a crash is the same to the byte, and its id too: so it is recognised."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing

from tests.daemon import Daemon, until
from tests.mongod import ReplicaSet

# Writes what it gets; and, as docs/handlers.md says, its effect only where the id is a new one.
HANDLER = """
import sqlite3
from bson.json_util import dumps

database = sqlite3.connect("orders.db")
database.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, number INTEGER)")

async def handle(event):
    with open("calls", "a") as file:
        print(event.document_key["_id"], dumps(event.id), event.raw.hex(), file=file)
    with database:
        database.execute(
            "INSERT INTO done VALUES (?, ?) ON CONFLICT DO NOTHING",
            (event.id["_data"], event.document_key["_id"]),
        )
"""


def test_after_a_crash_an_event_has_the_same_id_and_bytes(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon]
) -> None:
    scope = {"name": "orders", "database": database, "collection": "orders"}
    run = daemon(
        mongod.uri,
        scopes=[{**scope, "max_await_time_ms": 200}],
        handlers={"mine": {"type": "python", "target": "mine:handle"}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
        # Only the first position is stored: after a crash everything comes again.
        checkpoint={"interval_seconds": 3600},
    )
    (run.directory / "mine.py").write_text(HANDLER)
    calls = run.directory / "calls"

    def seen() -> list[list[str]]:
        text = calls.read_text() if calls.exists() else ""
        return [line.split(" ", 1) for line in text[: text.rfind("\n") + 1].splitlines()]

    run.start()
    with mongod.client() as client:
        client[database].orders.insert_many([{"_id": number} for number in range(50)])
    for crash in (1, 2):
        until(lambda: len(seen()) >= 50 * crash, "every change")  # noqa: B023 - awaited here
        run.signal(signal.SIGKILL)
        run.wait()
        run.start()
    until(lambda: len(seen()) >= 150, "every change")
    assert run.stop() == 0
    assert len(seen()) == 150
    assert len({number for number, _ in seen()}) == 50
    assert len({f"{number} {event}" for number, event in seen()}) == 50
    with closing(sqlite3.connect(run.directory / "orders.db")) as done:
        numbers = [number for (number,) in done.execute("SELECT number FROM done ORDER BY 1")]
    assert numbers == list(range(50))
