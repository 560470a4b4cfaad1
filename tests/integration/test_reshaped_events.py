"""Pipelines that reshape events but keep ``_id``: everything works."""

import json
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.lake import rows
from tests.machine import free_port
from tests.orders import Orders

# Reads every attribute of each event; refuses the documents that the file "poison" names.
READER = """
import json
from pathlib import Path

NAMES = [
    *("ns", "to", "document_key", "full_document", "full_document_before_change", "lsid"),
    *("update_description", "operation_description", "cluster_time", "wall_time", "ns_type"),
    *("collection_uuid", "txn_number", "key", "operation_type", "id"),
]

async def handle(event):
    read = {name: repr(getattr(event, name)) for name in NAMES}
    poison = Path("poison").read_text() if Path("poison").exists() else None
    if poison and poison in read["full_document"]:
        raise ValueError(poison)
    with open("read", "a") as file:
        print(json.dumps(read), file=file)
"""

PIPELINES: dict[str, list[dict[str, Any]]] = {
    "a part of the namespace": [
        {"$project": {"operationType": 1, "ns.coll": 1, "documentKey": 1, "fullDocument": 1}}
    ],
    "without the drop and the invalidate": [{"$match": {"documentKey": {"$exists": True}}}],
    "the token alone": [{"$project": {"_id": 1}}],
    "other types": [
        {
            "$replaceWith": {
                "_id": "$_id",
                "operationType": 5,
                "clusterTime": "$operationType",
                "ns": "$ns.coll",
                "documentKey": "$documentKey._id",
                "fullDocument": "$fullDocument",
                "updateDescription": ["$ns"],
                "wallTime": {"$literal": {"db": 1}},
                "lsid": "$$NOW",
                "txnNumber": "many",
            }
        }
    ],
}


def reader(orders: Orders, pipeline: list[dict[str, Any]]) -> Daemon:
    return orders.daemon(
        source=READER,
        http={"port": free_port()},
        delivery={"retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.02}},
        scope={"pipeline": pipeline},
        handlers={
            "mine": {"type": "python", "target": "mine:handle"},
            "file": {"type": "jsonl", "path": "events.jsonl"},
            "log": {"type": "log"},
            "lake": {"type": "parquet", "path": "lake", "segment_seconds": 0.1},
        },
        routes=[
            {"scope": "orders", "handlers": ["file", "log", "lake"]},
            {
                "scope": "orders",
                "operations": ["insert", "update"],
                "namespaces": [f"{orders.database}.orders"],
                "handlers": ["mine"],
            },
        ],
    )


def read(run: Daemon) -> list[dict[str, str]]:
    path = run.directory / "read"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("name", PIPELINES)
def test_a_reshaped_stream_is_delivered_and_survives_a_drop(orders: Orders, name: str) -> None:
    run = reader(orders, PIPELINES[name]).start()
    whole = 7 if name.startswith("without") else 9
    orders.insert(*range(5))
    with orders.server.client() as client:
        client[orders.database].orders.update_one({"_id": 0}, {"$set": {"n": 1}})
    run.until_events(6)
    until(lambda: len(read(run)) == 6, "the handler of attributes")
    orders.drop()
    orders.insert(6)
    run.until_handled(file=whole, log=whole, lake=whole)
    assert run.metric("tailrace_watcher_restarts_total") is None
    assert run.metric("tailrace_invalidates_total") == 1
    assert run.stop() == 0
    assert len(run.events()) == whole
    assert len(rows(run.directory / "lake", "orders")) == whole


def test_letters_of_reshaped_events_hold_no_start_up(orders: Orders) -> None:
    run = reader(orders, PIPELINES["other types"])
    (run.directory / "poison").write_text("poison")
    run.start()
    orders.insert_each([{"_id": 1, "a": "poison"}, {"_id": 2}])
    until(lambda: run.metric("tailrace_dead_letters_total", handler="mine") == 1, "a letter")
    until(lambda: len(read(run)) == 1, "the other document")
    assert run.stop() == 0
    letter = json.loads(run.command("dead-letters", "export"))
    assert letter["letter"] in run.command("dead-letters", "list")
    assert "poison" in run.command("dead-letters", "show", letter["letter"])
    run.start()
    orders.insert(3)
    until(lambda: len(read(run)) == 2, "what comes behind the restart")
    (run.directory / "poison").unlink()
    run.command("dead-letters", "replay")
    assert len(read(run)) == 3
    assert run.stop() == 0
    assert "No dead letters" in run.command("dead-letters", "list")
