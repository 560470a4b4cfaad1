"""Transactions of a real server, handed over whole."""

import json
from datetime import UTC, datetime
from itertools import chain

from tests.daemon import until, whole_lines
from tests.orders import Orders

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


def test_the_events_of_a_transaction_come_in_one_call(orders: Orders) -> None:
    """However small the calls and replies are; events around the transaction come in order."""
    run = orders.daemon(
        targets={"calls": {"target": "mine:note", "batch_size": 2}},
        source=CALLS,
        scope={"transactions": "grouped", "batch_size": 3},
    )
    del run.configuration["scopes"][0]["collection"]
    run.configuration["routes"][0]["operations"] = ["insert"]

    def calls() -> list[list[str]]:
        path = run.directory / "calls"
        return [json.loads(line) for line in whole_lines(path.read_text())] if path.exists() else []

    with orders.server.client() as client:
        shop = client[orders.database]
        shop.orders.insert_one({"_id": "made before"})
        shop.items.insert_one({"_id": "made before, too"})
        run.start()
        shop.orders.insert_one({"_id": "a"})
        for number in range(3):
            with client.start_session() as session, session.start_transaction():
                for line in range(4):
                    shop.items.insert_one({"_id": f"{number}.{line}"}, session=session)
                shop.orders.insert_one({"_id": f"{number}"}, session=session)
        shop.orders.insert_one({"_id": "b"})
    until(lambda: "b" in list(chain(*calls())), "the last change")
    assert run.stop() == 0, run.log
    transactions = [[f"{n}.{line}" for line in range(4)] + [f"{n}"] for n in range(3)]
    assert list(chain(*calls())) == ["a", *chain(*transactions), "b"]
    for transaction in transactions:
        assert transaction in calls()


def test_a_transaction_of_several_oplog_entries(orders: Orders) -> None:
    """24 MB, which mongod writes in parts: its events come in order, with one time.

    An aborted transaction has no events. A crash after it repeats nothing that is in the
    checkpoint.
    """
    run = orders.daemon(
        targets={"notes": {"target": "mine:note"}}, source=NOTES, delivery={"lanes": 1}
    ).start()

    def notes() -> list[tuple[str, int, int]]:
        path = run.directory / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(name, int(time), int(number)) for name, time, number in map(str.split, lines)]

    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.insert_one({"_id": "before"})
        with client.start_session() as session:
            with session.start_transaction():
                collection.insert_one({"_id": "aborted"}, session=session)
                session.abort_transaction()
            with session.start_transaction():
                for number in range(24):
                    document = {"_id": f"in{number}", "text": "x" * 1_000_000}
                    collection.insert_one(document, session=session)
        collection.insert_one({"_id": "behind"})
        until(lambda: notes()[-1:] and notes()[-1][0] == "behind", "the last event")
        behind = datetime.fromtimestamp(notes()[-1][1] >> 32, UTC).isoformat()
        until(lambda: run.status()["checkpoint"]["cluster_time"] > behind, "the checkpoint")
        run.kill()
        collection.insert_one({"_id": "later"})
    run.start()
    until(lambda: notes()[-1][0] == "later", "the event behind the crash")
    assert run.stop() == 0, run.log
    inside = [f"in{number}" for number in range(24)]
    assert [name for name, *_ in notes()] == ["before", *inside, "behind", "later"]
    assert len({time for name, time, _ in notes() if name in inside}) == 1
    assert {number > 0 for name, _, number in notes() if name in inside} == {True}
