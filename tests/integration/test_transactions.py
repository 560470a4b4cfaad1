"""Transactions of a real server, handed over whole."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain

from tests.daemon import Daemon, until
from tests.mongod import ReplicaSet

CALLS = """
import json


async def note(events):
    with open("calls", "a") as file:
        print(json.dumps([event.document_key["_id"] for event in events]), file=file)
"""


NOTES = """
async def note(event):
    time = event.cluster_time
    number = event.document.get("txnNumber", 0)
    with open("notes", "a") as file:
        print(event.document_key["_id"], time.time * 2**32 + time.inc, number, file=file)
"""


def test_the_events_of_a_transaction_come_in_one_call(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon]
) -> None:
    """However small the calls and the replies are; and what is around it comes in its order."""
    run = daemon(
        mongod.uri,
        scopes=[
            {
                "name": "shop",
                "database": database,
                "transactions": "grouped",
                "batch_size": 3,
                "max_await_time_ms": 100,
            }
        ],
        handlers={"calls": {"type": "python", "target": "calls:note", "batch_size": 2}},
        routes=[{"scope": "shop", "handlers": ["calls"], "operations": ["insert"]}],
    )
    (run.directory / "calls.py").write_text(CALLS)
    with mongod.client() as client:
        orders, items = client[database]["orders"], client[database]["items"]
        orders.insert_one({"_id": "made before"})
        items.insert_one({"_id": "made before, too"})
        run.start()
        orders.insert_one({"_id": "a"})
        for number in range(3):
            with client.start_session() as session, session.start_transaction():
                for line in range(4):
                    items.insert_one({"_id": f"{number}.{line}"}, session=session)
                orders.insert_one({"_id": f"{number}"}, session=session)
        orders.insert_one({"_id": "b"})

        def calls() -> list[list[str]]:
            path = run.directory / "calls"
            text = path.read_text() if path.exists() else ""
            return [
                json.loads(line) for line in text.splitlines(keepends=True) if line[-1:] == "\n"
            ]

        until(lambda: "b" in list(chain(*calls())), "the last change")
        assert run.stop() == 0, run.log
    transactions = [[f"{n}.{line}" for line in range(4)] + [f"{n}"] for n in range(3)]
    assert list(chain(*calls())) == ["a", *chain(*transactions), "b"]
    for transaction in transactions:
        assert transaction in calls()


def test_a_transaction_of_several_oplog_entries(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon]
) -> None:
    """24 MB, which mongod writes in parts: its events come in order, with one time; and no event
    of one that was aborted. A crash behind it repeats nothing that the checkpoint has."""
    scope = {"name": "orders", "database": database, "collection": "orders"}
    handlers = {"notes": {"type": "python", "target": "notes:note"}}
    run = daemon(
        mongod.uri,
        scopes=[{**scope, "max_await_time_ms": 100}],
        handlers=handlers,
        routes=[{"scope": "orders", "handlers": ["notes"]}],
        delivery={"lanes": 1},
    )
    (run.directory / "notes.py").write_text(NOTES)
    run.start()

    def notes() -> list[tuple[str, int, int]]:
        path = run.directory / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(name, int(time), int(number)) for name, time, number in map(str.split, lines)]

    with mongod.client() as client:
        orders = client[database].orders
        orders.insert_one({"_id": "before"})
        with client.start_session() as session:
            with session.start_transaction():
                orders.insert_one({"_id": "aborted"}, session=session)
                session.abort_transaction()
            with session.start_transaction():
                for number in range(24):
                    document = {"_id": f"in{number}", "text": "x" * 1_000_000}
                    orders.insert_one(document, session=session)
        orders.insert_one({"_id": "behind"})
        until(lambda: notes()[-1:] and notes()[-1][0] == "behind", "the last event")
        behind = datetime.fromtimestamp(notes()[-1][1] >> 32, UTC).isoformat()
        until(lambda: run.status()["checkpoint"]["cluster_time"] > behind, "the checkpoint")
        run.signal(signal.SIGKILL)
        run.wait()
        orders.insert_one({"_id": "later"})
    run.start()
    until(lambda: notes()[-1][0] == "later", "the event behind the crash")
    assert run.stop() == 0, run.log
    inside = [f"in{number}" for number in range(24)]
    assert [name for name, *_ in notes()] == ["before", *inside, "behind", "later"]
    assert len({time for name, time, _ in notes() if name in inside}) == 1
    assert {number > 0 for name, _, number in notes() if name in inside} == {True}
