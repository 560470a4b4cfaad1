"""What comes again after a crash is the same to the byte, and its id too: so it is recognised."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.daemon import until, whole_lines
from tests.orders import Orders

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


def test_after_a_crash_an_event_has_the_same_id_and_bytes(orders: Orders) -> None:
    run = orders.daemon(
        targets={"mine": {"target": "mine:handle"}},
        source=HANDLER,
        # Only the first position is stored: after a crash everything comes again.
        checkpoint={"interval_seconds": 3600},
    ).start()
    calls = run.directory / "calls"

    def seen() -> list[str]:
        return whole_lines(calls.read_text()) if calls.exists() else []

    orders.insert(*range(50))
    for crash in (1, 2):
        until(lambda: len(seen()) >= 50 * crash, "every change")  # noqa: B023 - awaited here
        run.kill()
        run.start()
    until(lambda: len(seen()) >= 150, "every change")
    assert run.stop() == 0
    assert len(seen()) == 150
    assert len({line.partition(" ")[0] for line in seen()}) == len(set(seen())) == 50
    with closing(sqlite3.connect(run.directory / "orders.db")) as done:
        numbers = [number for (number,) in done.execute("SELECT number FROM done ORDER BY 1")]
    assert numbers == list(range(50))
