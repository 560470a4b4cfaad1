"""What handlers and readers get of any writes, where values are hashed, masked and left out.

The values have markers, which are in nothing that leaves the process. And what updates lead to is
what the rules make of the documents that the source has at the end.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest

from tailrace.event.extended_json import to_json
from tailrace.event.update_description import apply_update
from tests import lake
from tests.daemon import Daemon, until
from tests.integration.expected_fields import ExpectedFields
from tests.integration.marked_writes import HIDDEN, HIDDEN_BYTES, KEYS, LEFT_OUT, MarkedWrites
from tests.machine import free_port
from tests.orders import Orders
from tests.otlp import Collector, collecting

KEY = "the key of the hashes"
HASH = ["ssn", "who.email"]
MASK: Mapping[str, Any] = {"cards.number": {"keep_last": 4}, "notes": "***"}
LEAVE_OUT = ["who.address", "log.text", "internal"]
RENAME = {"old": "new", "who.name": "buyer"}
FIELDS = {
    "hash_key": {"file": "hash.key"},
    "hash": HASH,
    "mask": MASK,
    "leave_out": LEAVE_OUT,
    "rename": RENAME,
    "set": {"region": "eu"},
}
EXPECTED = ExpectedFields(KEY, FIELDS)
KEYED = {**FIELDS, "hash": ["_id", *HASH]}
EXPECTED_KEYED = ExpectedFields(KEY, KEYED)
TAKEN = {**FIELDS, "take": ["ssn", "who", "cards", "log.at", "items.sku", "free.x"]}
SOURCE = """
def shaped(document):
    if document.get("bad") and "ssn" in document:
        raise ValueError(f"cannot shape {document}")
    return document

async def handle(event):
    if (event.full_document or {}).get("bad"):
        raise ValueError(f"refused {event.document}")
    with open("handled", "a") as file:
        print(event.document, file=file)
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def run(orders: Orders, collector: Collector) -> Daemon:
    """Follows ``people``, whose ``_id`` are hashed, and ``orders``, with whole documents and with
    the descriptions of updates alone."""
    whole = {
        "database": orders.database,
        "full_document": "lookup",
        "full_document_before_change": "whenAvailable",
        "snapshot": "initial",
        "max_await_time_ms": 200,
    }
    deltas = {"name": "deltas", "snapshot": "initial", "max_await_time_ms": 200}
    lines = {"type": "jsonl", "json": "canonical", "fields": FIELDS}
    mine = {"type": "python", "fields": KEYED}
    run = orders.daemon(
        source=SOURCE,
        scopes=[
            {"name": "people", "collection": "people", **whole},
            {"name": "orders", "collection": "orders", **whole},
            {**deltas, "database": orders.database, "collection": "orders"},
        ],
        handlers={
            "mine": {**mine, "target": "mine:handle"},
            "shaped": {**mine, "target": "mine:handle", "transform": "mine:shaped"},
            "keyed": {**lines, "path": "keyed.jsonl", "fields": KEYED},
            "log": {"type": "log", "fields": FIELDS},
            "lake": {"type": "parquet", "path": "lake", "segment_seconds": 0.5, "fields": FIELDS},
            "mirror": {
                "type": "mongodb",
                "uri": orders.uri,
                "database": f"{orders.database}_store",
                "fields": FIELDS,
            },
            "deltas": {**lines, "path": "deltas.jsonl"},
            "taken": {**lines, "path": "taken.jsonl", "fields": TAKEN},
        },
        routes=[
            {"scope": "people", "handlers": ["mine", "shaped", "keyed"]},
            {"scope": "orders", "handlers": ["log", "lake", "mirror"]},
            {"scope": "deltas", "handlers": ["deltas", "taken"]},
        ],
        delivery={"retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.02}},
        http={"port": free_port()},
        logging={"level": "debug"},
        telemetry={"endpoint": collector.url},
    )
    (run.directory / "hash.key").write_text(f"{KEY}\n")
    return run


@pytest.mark.parametrize("seed", range(3))
def test_no_plain_value_leaves_the_process_and_updates_lead_to_what_documents_have(
    orders: Orders, run: Daemon, collector: Collector, seed: int
) -> None:
    hidden = [*HASH, *MASK]
    with orders.server.client() as client:
        people, ordered = (
            client[orders.database].create_collection(
                name, changeStreamPreAndPostImages={"enabled": True}
            )
            for name in ("people", "orders")
        )
        random = Random(seed)
        writes = [
            MarkedWrites(random, people, hidden, LEAVE_OUT, secret_keys=True),
            MarkedWrites(random, ordered, hidden, LEAVE_OUT),
        ]
        for each in [*writes] * 10:
            each.insert()
        run.start()
        for scope in ("people", "orders", "deltas"):
            run.until_copied(scope)
        for each in [*writes] * 150:
            each.write()
        for each in writes:
            each.truncate()
        person, order = (each.insert() for each in writes)
        hashed = EXPECTED_KEYED.of({"_id": person})["_id"]
        until(lambda: hashed in run.ids("keyed.jsonl"), "the last person")
        for file in ("deltas.jsonl", "taken.jsonl"):
            until(lambda file=file: order in run.ids(file), "the last delta")
        copies = client[f"{orders.database}_store"].orders
        until(lambda: copies.find_one({"_id": order}), "the last copy")
        until(lambda: order in [_id(row) for row in landed(run)], "the last row of the lake")
        source = {name: [*client[orders.database][name].find()] for name in ("people", "orders")}
        copy = [*copies.find()]
    answers = [
        run.get(path)[1] for path in ("/", "/status", "/metrics", "/dead-letters", "/history")
    ]
    letters = until(lambda: letters_of(run, "mine", "shaped"), "dead letters of both")
    answers += [run.command("dead-letters", "show", each["id"]) for each in letters[:2]]
    answers += [run.command("dead-letters", "list")]
    why = [
        run.command("why", "--scope", scope, "--key", json.dumps(own), *more)
        for scope, own in (("orders", order), ("people", source["people"][0]["_id"]))
        for more in ((), ("--json",))
    ]
    assert run.stop() == 0
    run.start()  # from its positions, which it names
    answers.append(run.get("/status")[1])
    assert run.stop() == 0

    assert shown(HIDDEN, answers, why, copy, rows := landed(run)) == []
    assert shown(KEYS, answers, stored_letters(run)) == []
    assert shown(LEFT_OUT, copy, rows) == []
    for path in filter(Path.is_file, run.directory.rglob("*")):
        data = path.read_bytes()
        assert shown(HIDDEN_BYTES, data) == [], path
        if not path.name.startswith("tailrace.db"):  # it has the positions
            assert shown(KEYS, data) == [], path
        if path.suffix == ".jsonl" or path.name == "handled":
            assert shown(LEFT_OUT, data) == [], path
    assert shown(HIDDEN_BYTES, *collector.bodies) == []
    assert shown(KEYS, *collector.bodies) == []

    deltas = run.events("deltas.jsonl")
    expected = texts(EXPECTED.of(each) for each in source["orders"])
    assert texts(copy) ^ expected == set()
    assert folded(deltas) ^ expected == set()
    assert folded(events_of(rows)) ^ expected == set()
    taken = texts(ExpectedFields(KEY, TAKEN).of(each) for each in source["orders"])
    assert folded(run.events("taken.jsonl")) ^ taken == set()
    people = texts(EXPECTED_KEYED.of(each) for each in source["people"])
    assert folded(run.events("keyed.jsonl")) ^ people == set()
    operations = {each["operationType"] for each in deltas}
    assert operations > {"read", "insert", "update", "replace", "delete"}
    assert any((each.get("updateDescription") or {}).get("truncatedArrays") for each in deltas)


def letters_of(run: Daemon, *handlers: str) -> list[dict[str, Any]]:
    """All dead letters, once each of these handlers has some."""
    letters = run.letters()
    return letters if {each["handler"] for each in letters} == {*handlers} else []


def landed(run: Daemon) -> list[dict[str, Any]]:
    where = run.directory / "lake"
    return lake.rows(where, "orders") if (where / "orders").exists() else []


def _id(row: Mapping[str, Any]) -> Any:
    return bson.decode(row["document_key"])["_id"] if row["document_key"] else None


def events_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events of rows, as those of a file."""
    return [
        {
            "operationType": row["operation"],
            "documentKey": json.loads(to_json(row["document_key"], canonical=True)),
            "fullDocument": row["full_document"]
            and json.loads(to_json(row["full_document"], canonical=True)),
        }
        for row in rows
        if row["document_key"]
    ]


def shown(markers: Sequence[str] | Sequence[bytes], *places: Any) -> list[str]:
    """What is around each marker in these places."""
    found: list[str] = []
    for place in places:
        text: Any = place if isinstance(place, bytes) else repr(place)
        for marker in markers:
            own: Any = (
                marker.encode() if isinstance(text, bytes) and isinstance(marker, str) else marker
            )
            if (at := text.find(own)) >= 0:
                found.append(repr(text[max(at - 200, 0) : at + 60]))
    return found


def stored_letters(run: Daemon) -> str:
    with closing(sqlite3.connect(run.directory / "tailrace.db")) as store:
        return str(store.execute("SELECT * FROM dead_letters").fetchall())


def folded(events: Sequence[Mapping[str, Any]]) -> set[str]:
    """The documents to which events amount."""
    found: dict[str, Any] = {}
    for event in events:
        key = json.dumps(event.get("documentKey"), sort_keys=True)
        whole = event.get("fullDocument")
        if event["operationType"] == "delete":
            found.pop(key, None)
        elif whole is not None:
            found[key] = whole
        elif event["operationType"] == "update" and "updateDescription" in event and key in found:
            found[key] = apply_update(found[key], event["updateDescription"])
    return {json.dumps(each, sort_keys=True) for each in found.values()}


def texts(documents: Iterable[Mapping[str, Any]]) -> set[str]:
    """With every type, and without the order of fields, which an event cannot tell."""
    found = [json.loads(to_json(bson.encode(each), canonical=True)) for each in documents]
    return {json.dumps(each, sort_keys=True) for each in found}
