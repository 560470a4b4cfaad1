"""Transactions of a real server, handed over whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain

import pytest

from tests.daemon import Daemon, until
from tests.embedded import Embedded

pytestmark = pytest.mark.integration

CALLS = """
import json


async def note(events):
    with open("calls", "a") as file:
        print(json.dumps([event.document_key["_id"] for event in events]), file=file)
"""


def test_the_events_of_a_transaction_come_in_one_call(
    embedded: Embedded, database: str, daemon: Callable[..., Daemon]
) -> None:
    """However small the calls and the replies are; and what is around it comes in its order."""
    run = daemon(
        embedded.uri,
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
    with embedded.client() as client:
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
