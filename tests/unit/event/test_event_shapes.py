"""Pipelines may reshape events in any way that keeps ``_id``: nothing that reads one fails.

What is not as the server sends it is as if it were not there.
"""

import json
from datetime import timedelta
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Int64
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.cli.dead_letter_text import details, row, table
from tailrace.destinations.log import LogHandlerSettings, log_handler
from tailrace.engine.handle.letter_queues import event_of
from tailrace.engine.plan.router import routed
from tailrace.event import ChangeEvent, Image, Namespace
from tailrace.model import ResumeToken, Route
from tailrace.stores.mongodb_dead_letters import from_document, to_document
from tailrace.stores.records import letter_line, letter_record, read_letter
from tests.contract import stores
from tests.handlers import deliver, handler, opening
from tests.scripted.wire import in_order
from tests.unit.event.documents import quick, values
from tests.unit.event.events import TYPES

TOKEN = {"_data": "8265A0B0C000000001"}
RIGHT: dict[str, Any] = {
    "operationType": "update",
    "clusterTime": Timestamp(1_700_000_000, 3),
    "fullDocument": {"_id": 1, "a": 2},
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": 1},
}
namespaces = st.dictionaries(st.sampled_from(["db", "coll", "x"]), values, max_size=3)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Some fields as the server sends them, and in the place of others anything or nothing."""
    event: dict[str, Any] = {"_id": TOKEN}
    fields = ["operationType", "splitEvent", "other", *(field for field, _ in TYPES.values())]
    for field in draw(st.permutations(fields)) if draw(st.booleans()) else fields:
        match draw(st.integers(0, 3)):
            case 0:
                event[field] = draw(namespaces if field in ("ns", "to") else values)
            case 1 | 2 if field in RIGHT:
                event[field] = RIGHT[field]
    return event


@quick
@given(shapes(), st.permutations(sorted(TYPES)))
def test_an_attribute_is_of_its_type_or_none(shape: dict[str, Any], order: list[str]) -> None:
    event = ChangeEvent(in_order(shape))
    for name in order:
        value = getattr(event, name)
        assert value is None or isinstance(value, TYPES[name][1]), name
    assert event.id == TOKEN
    assert event.token == ResumeToken.of(TOKEN)
    assert type(event.operation_type) is str
    assert (event.full_document_image is Image.PRESENT) is (event.full_document is not None)
    before = event.full_document_before_change
    assert (event.full_document_before_change_image is Image.PRESENT) is (before is not None)
    assert (event.key is None) is (event.document_key is None)
    assert event.key == event.fresh().key
    assert event.token.digest in repr(event)


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        ({"db": "shop", "coll": "orders"}, Namespace("shop", "orders")),
        ({"db": "shop"}, Namespace("shop")),
        ({"db": "shop", "coll": 5}, Namespace("shop")),
        ({"coll": "orders"}, None),
        ({"db": None, "coll": "orders"}, None),
        ({"db": Code("shop")}, None),
        ({}, None),
        ("shop.orders", None),
        ([{"db": "shop"}], None),
        (DBRef("shop", 1), None),
    ],
    ids=repr,
)
def test_a_namespace_has_a_database(ns: Any, expected: Namespace | None) -> None:
    event = ChangeEvent.from_document({"_id": TOKEN, "ns": ns, "to": ns})
    assert event.ns == event.to == expected


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("txn_number", True),
        ("txn_number", 1.0),
        ("ns_type", Code("view")),
        ("collection_uuid", Binary(b"x" * 16, 5)),
        ("collection_uuid", b"x" * 16),
        ("cluster_time", Int64(1)),
        ("document_key", [1]),
        ("full_document", "text"),
    ],
    ids=repr,
)
def test_what_only_looks_like_it_is_none(attribute: str, value: Any) -> None:
    event = ChangeEvent.from_document({"_id": TOKEN, TYPES[attribute][0]: value})
    assert getattr(event, attribute) is None


def test_a_document_like_a_reference_is_a_document() -> None:
    """`$ref` and `$id` may be fields of a document; bson takes one with both for a reference."""
    image = {"_id": 1, "$id": 2, "$ref": "c"}
    event = ChangeEvent.from_document(
        {"_id": TOKEN, "fullDocument": image, "documentKey": image, "wallTime": image}
    )
    assert event.document["documentKey"] == DBRef("c", 2, _id=1)
    assert list(event.full_document or {}) == list(image)
    assert event.full_document_image is Image.PRESENT
    assert event.document_key == image
    assert event.wall_time is None


# --- those who read events ---------------------------------------------------------------------


@quick
@given(shapes())
def test_a_letter_of_any_event_is_read_again_and_shown(shape: dict[str, Any]) -> None:
    written = stores.letter(raw=in_order(shape))
    assert read_letter(letter_record(written), where="") == written
    record = bson.decode(bson.encode({**to_document(written), "sequence": Timestamp(1, 1)}))
    assert from_document(record, "letters")[1] == written
    assert json.loads(letter_line(written))["letter"] == written.id
    assert event_of(written) is not None
    now = stores.NOW + timedelta(hours=1)
    assert "\n1 dead letter" in table([row(written, now)])
    assert f"letter:       {written.id}" in details(written, written.id, now)


@quick
@given(shapes())
def test_routes_take_any_event(shape: dict[str, Any]) -> None:
    """And pass over none that does not say what they ask for."""

    async def accept(event: ChangeEvent) -> None: ...

    event = ChangeEvent(in_order(shape))
    for operations in (frozenset({"insert"}), frozenset()):
        for namespaces in (("shop.orders",), ()):
            route = Route("orders", ("audit",), operations, namespaces)
            (one,) = routed("orders", [route], {"audit": handler("audit", accept)})
            said = [
                operations and event.operation_type not in ("", "insert"),
                namespaces and event.ns is not None,
            ]
            assert one.wants is None or one.wants(event) or any(said)


@pytest.mark.parametrize("value", [None, 5, "x", {}, {"coll": "c"}, [{"db": "x"}]], ids=repr)
async def test_the_log_takes_any_event(value: Any) -> None:
    fields = dict.fromkeys(["operationType", *(field for field, _ in TYPES.values())], value)
    with capture_logs() as logs:
        to = log_handler(opening("log"), LogHandlerSettings(type="log"), None)
        await deliver(to, ChangeEvent.from_document({"_id": TOKEN, **fields}))
    (line,) = logs
    assert (line["event"], line["ns"], line["cluster_time"]) == ("event.received", None, None)
