"""What ``tailrace why`` answers about a document, on a real server."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.drivers import DRIVERS
from tailrace.event.key import read_key
from tailrace.model import Checkpoint, Position, PositionKind, Route, Scope, StartPoint
from tailrace.model.gap import Gap
from tailrace.stores.memory import MemoryCheckpoints, MemoryDeadLetters
from tailrace.stream import ChangeStreamOptions
from tailrace.why.answer import DocumentOutcome
from tailrace.why.inquiry import Inquiry
from tests.contract.stores import letter
from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.mongod import Client, ReplicaSet
from tests.orders import Orders
from tests.unit.engine.changes import change

FAILS = """
async def handle(event):
    if event.full_document.get("bad"):
        raise ValueError("no price")
"""


def why(run: Daemon, key: str, *more: str) -> dict[str, Any]:
    answer = run.command("why", "--scope", "orders", "--key", key, "--json", *more)
    return json.loads(answer)


def states(answer: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """By change, the latest first, its operation and its state for each handler."""
    return [
        (change["operation"], {name: one["state"] for name, one in change["handlers"].items()})
        for change in answer["changes"]
    ]


def test_a_document_is_found_in_every_place_that_its_changes_reached(orders: Orders) -> None:
    orders.insert(1)
    run = orders.daemon(
        source=FAILS,
        handlers={
            "mine": {"type": "python", "target": "mine:handle", "retry": {"attempts": 2}},
            "lake": {"type": "parquet", "path": "lake", "segment_seconds": 0.1},
        },
        routes=[
            {"scope": "orders", "handlers": ["mine"], "operations": ["insert", "replace"]},
            {"scope": "orders", "handlers": ["lake"]},
        ],
        delivery={"retry": {"first_seconds": 0.01}},
    ).start()
    orders.insert(2, 3)
    orders.insert(4, bad=True)
    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.replace_one({"_id": 4}, {"bad": False})
        collection.delete_one({"_id": 2})
        last = collection.count_documents({})
    run.until_handled(mine=4, lake=5)
    assert run.stop() == 0
    assert last == 3

    found = why(run, "2")
    assert states(found) == [
        ("delete", {"mine": "filtered", "lake": "handled"}),
        ("insert", {"mine": "handled", "lake": "handled"}),
    ]
    assert found["exists"] is False
    assert [row["operation"] for row in found["landed"]] == ["delete", "insert"]
    assert found["collection"] == f"{orders.database}.orders"
    assert not found["tables"]
    found = why(run, "2", "--tables", "nowhere")
    assert f"{run.directory}/nowhere: there are no tables of this pipeline" in str(found["unknown"])

    found = why(run, '{"_id": 4.0}')
    assert [each["mine"] for _, each in states(found)] == ["behind_dead_letter", "dead_letter"]
    letters = [change["handlers"]["mine"]["letter"] for change in found["changes"]]
    assert found["repairs"][0]["command"].startswith("tailrace dead-letters replay")
    assert all(letter in found["repairs"][0]["command"] for letter in letters)
    assert "tried 2 times: ValueError: no price" in str(found["changes"][1]["handlers"]["mine"])

    found = why(run, "1")
    assert states(found) == [("insert", {"mine": "before_start", "lake": "before_start"})]
    assert "tailrace snapshot start orders" in found["repairs"][0]["command"]

    orders.insert(5)
    found = why(run, "5")
    assert states(found) == [("insert", {"mine": "after_checkpoint", "lake": "after_checkpoint"})]


STUBBORN = """
from tailrace import TemporaryError

async def handle(event):
    if event.full_document.get("bad"):
        raise TemporaryError("busy", delay=60)
"""


def test_a_running_service_tells_what_it_has_in_flight(orders: Orders) -> None:
    orders.insert(0)
    run = orders.daemon(
        targets={"mine": {"target": "mine:handle"}},
        source=STUBBORN,
        delivery={"lanes": 1},
        http={"port": free_port()},
    ).start()

    def asked(query: str) -> tuple[int, Any]:
        status, text = run.get(f"/scopes/orders/why?{query}")
        return status, json.loads(text) if status == 200 else text

    def now(key: str) -> dict[str, Any]:
        changes = asked(f"key={key}")[1]["changes"]
        outcome: dict[str, Any] = changes[0]["handlers"]["mine"] if changes else {"state": ""}
        return outcome

    orders.insert(1)
    until(lambda: now("1")["state"] == "handled", "the first one")
    orders.insert(2, bad=True)
    until(lambda: now("2")["state"] == "retrying", "a failure")
    assert now("2")["detail"] == "it has failed once, and is tried again: TemporaryError: busy"
    orders.insert(3)
    until(lambda: now("3")["state"] == "queued", "a place")
    # What was written before is not in flight.
    assert now("0")["state"] == "before_start"
    assert "the checkpoint waits" not in now("1")["detail"]
    for query, status, message in (
        ("key=A-17", 400, "is not Extended JSON"),
        ("key=1&collection=other", 400, "follows collection"),
        ("", 400, "key"),
        ("key=1&seconds=x", 400, "seconds"),
    ):
        answer = asked(query)
        assert answer[0] == status
        assert message in answer[1]

    found = why(run, "1", "--tables", "nowhere")
    assert "nowhere: there are no tables of this pipeline" in str(found["unknown"])
    run.command("scopes", "pause", "orders")
    until(lambda: run.status()["state"] == "paused", "the pause")
    orders.insert(4)
    for key in "234":
        assert now(key)["state"] == "not_read"
        assert "the scope is paused" in now(key)["detail"]
    assert why(run, "4")["changes"][0]["handlers"]["mine"]["state"] == "not_read"


def test_a_change_that_a_seek_skipped_is_in_a_gap_until_another_leads_back_to_it(
    orders: Orders,
) -> None:
    run = orders.daemon(http={"port": free_port()}).start()
    orders.insert(1)
    run.until_events(1)
    run.command("scopes", "pause", "orders")
    orders.insert(2)
    with orders.server.client() as client:
        skipped = client.admin.command("ping")["operationTime"].time

        def later() -> int:
            second: int = client.admin.command("ping")["operationTime"].time
            return second if second > skipped else 0

        second = until(later, "a later second")

    def now() -> str:
        state: str = why(run, "2")["changes"][0]["handlers"]["file"]["state"]
        return state

    def moved(*where: str) -> str:
        run.command("scopes", "seek", "orders", *where)
        return now()

    assert moved("--at", datetime.fromtimestamp(second, UTC).isoformat()) == "in_gap"
    assert moved("--undo") == "not_read"
    assert moved("--undo") == "in_gap"
    assert moved("--undo") == "not_read"
    run.command("scopes", "resume", "orders")
    run.until_events(2)
    until(lambda: now() == "handled", "the save")
    run.command("scopes", "seek", "orders", "--undo")
    assert now() == "handled"
    assert run.stop() == 0
    assert now() == "handled"


@pytest.fixture
def client(mongod: ReplicaSet) -> Iterator[Client]:
    with mongod.client() as client:
        yield client


Ask = Callable[..., DocumentOutcome]


@pytest.fixture
def ask(mongod: ReplicaSet, database: str) -> Ask:
    """Asks about a key of a scope of this database, with a store in memory."""

    def asked(
        key: str,
        *,
        store: MemoryCheckpoints | None = None,
        letters: MemoryDeadLetters | None = None,
        pipeline: tuple[dict[str, Any], ...] = (),
        start: StartPoint | None = None,
        routes: tuple[Route, ...] = (Route("shop", ("log",)),),
        collection: str = "",
        uri: str = mongod.uri,
        seconds: float = 5.0,
    ) -> DocumentOutcome:
        async def ask() -> DocumentOutcome:
            async with DRIVERS["pymongo"](uri, 1) as driver:
                inquiry = Inquiry(
                    Scope("shop", database),
                    ChangeStreamOptions(pipeline=pipeline),
                    start or StartPoint(),
                    routes,
                    {},
                    store or MemoryCheckpoints(),
                    letters or MemoryDeadLetters(),
                    driver,
                )
                return await inquiry.answer(read_key(key), collection, seconds)

        return anyio.run(ask)

    return asked


def outcomes(answer: DocumentOutcome) -> list[str]:
    return [one.state for change in answer.changes for one in change.handlers.values()]


def test_the_pipeline_of_the_scope_filters_a_change(
    ask: Ask, client: Client, database: str
) -> None:
    client[database].orders.insert_many([{"_id": "a", "n": 1}, {"_id": "b", "n": 2}])
    start = StartPoint(at_operation_time=Timestamp(1, 1))
    pipeline = ({"$match": {"fullDocument.n": 2}},)
    assert outcomes(ask('"a"', start=start, pipeline=pipeline)) == ["filtered"]
    assert outcomes(ask('"b"', start=start, pipeline=pipeline)) == ["not_read"]


def test_a_key_of_several_collections_can_be_asked_for_in_one(
    ask: Ask, client: Client, database: str
) -> None:
    client[database].orders.insert_one({"_id": 7})
    client[database].items.insert_one({"_id": 7})
    assert {change.namespace for change in ask("7").changes} == {
        f"{database}.orders",
        f"{database}.items",
    }
    for name in ("items", f"{database}.items"):
        (change,) = ask("7", collection=name).changes
        assert change.namespace == f"{database}.items"


def test_a_scope_that_never_ran_starts_after_the_change(
    ask: Ask, client: Client, database: str
) -> None:
    client[database].orders.insert_one({"_id": 1})
    assert outcomes(ask("1")) == ["before_start"]


def test_a_key_of_no_document_may_have_another_type(
    ask: Ask, client: Client, database: str
) -> None:
    client[database].orders.insert_one({"_id": 1})
    answer = ask('"1"', collection="orders")
    assert answer.exists is False
    assert "check the key and its type" in answer.summary


def test_a_document_in_a_gap_was_skipped(ask: Ask, client: Client, database: str) -> None:
    client[database].orders.insert_one({"_id": 1})
    late = Timestamp(2**32 - 1, 1)
    gap = Gap("shop", None, Timestamp(1, 1), late, "lost", "skip", datetime.now(UTC))
    store = MemoryCheckpoints()
    anyio.run(store.record_gap, gap)
    position = Position(PositionKind.IDLE, None, None, late, started=Timestamp(1, 1))
    saved = Checkpoint("shop", position, "", "", 1, 1, datetime.now(UTC))
    anyio.run(store.save, saved)
    answer = ask("1", store=store)
    assert outcomes(answer) == ["in_gap"]
    assert "snapshot start" in answer.repairs[0].command
    assert "and the scope to 1970-01-01T00:00:01Z" in ask("2", store=store).unknown[0]


def test_a_row_of_a_snapshot_that_is_a_dead_letter_is_what_the_handler_lacks(
    ask: Ask, client: Client, database: str
) -> None:
    client[database].orders.insert_one({"_id": 1})
    late = Timestamp(2**32 - 1, 1)
    ns = {"db": database, "coll": "orders"}
    raw = bson.encode(change(1, 1, operationType="read", ns=ns, clusterTime=late))
    held = letter(raw=raw, scope="shop", handler="log", error="ValueError: no price")
    answer = ask("1", letters=MemoryDeadLetters(held))
    assert "Its last change, read, is: dead letter" in answer.summary
    assert f"dead-letters replay {held.id}" in answer.repairs[0].command


def test_nothing_takes_the_changes_of_a_scope_without_routes(
    ask: Ask, client: Client, database: str
) -> None:
    client[database].orders.insert_one({"_id": 1})
    answer = ask("1", routes=())
    assert outcomes(answer) == []
    assert "routed nowhere" in answer.summary


@pytest.mark.usefixtures("abandoned_connects")
def test_without_a_server_the_answer_says_what_it_does_not_know(ask: Ask) -> None:
    answer = ask("1", uri="mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", seconds=1)
    assert answer.exists is None
    assert not answer.changes
    assert "The server did not" in answer.unknown[0]
