"""The Debezium envelope: what Debezium 3.6.3 sent for the same changes, and its schema.

``debezium_3_6_3.jsonl`` was recorded beside a change stream on mongod 6.0.5, with the capture mode
``change_streams_update_full_with_pre_image`` and the JSON converter without schemas.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bson import Int64, json_util

from tailrace.envelope import Message, messages
from tailrace.event import ChangeEvent
from tests.scripted.wire import in_order
from tests.unit.envelope.changes import IDS, OPERATIONS, change

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("debezium_3_6_3.jsonl").read_text().splitlines()
]
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
MAYBE_TEXT, MAYBE_NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}


def struct(**properties: Any) -> dict[str, Any]:
    """A struct of Kafka Connect: its JSON converter writes every field, optional ones as null."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


# Debezium 3.6.3: MongoDbSchema, MongoDbSchemaFactory and MongoDbSourceInfoStructMaker.
KEY = struct(id=TEXT)
SOURCE = struct(
    **dict.fromkeys(("version", "connector", "name", "db", "collection"), TEXT),
    **dict.fromkeys(("ts_ms", "ts_us", "ts_ns", "ord"), NUMBER),
    **dict.fromkeys(("sequence", "lsid"), MAYBE_TEXT),
    **dict.fromkeys(("txnNumber", "wallTime"), MAYBE_NUMBER),
    snapshot={"enum": ["true", "first", "last", "false", "incremental"]},
)
DESCRIPTION = struct(
    removedFields=maybe({"type": "array", "items": TEXT}),
    updatedFields=MAYBE_TEXT,
    truncatedArrays=maybe({"type": "array", "items": struct(field=TEXT, size=NUMBER)}),
)
VALUE = struct(
    before=MAYBE_TEXT,
    after=MAYBE_TEXT,
    updateDescription=maybe(DESCRIPTION),
    source=SOURCE,
    op={"enum": ["c", "u", "d", "r"]},
    ts_ms=NUMBER,
    transaction={"type": "null"},
)


def message(event: dict[str, Any]) -> Message:
    return messages([ChangeEvent(in_order(event))], "orders", "debezium")[0]


def inner(text: str | None) -> Any:
    """The JSON in a string. Debezium writes a bare NaN there, which is not JSON."""
    return text and json.loads(text, parse_constant=lambda name: {"$numberDouble": name})


def comparable(value: str) -> dict[str, Any]:
    """A value without the names and the clock of its sender, and with the JSON in it parsed."""
    found: dict[str, Any] = json.loads(value)
    if found["op"] == "r":
        for field in ("ts_ms", "ts_us", "ts_ns", "ord", "snapshot"):
            del found["source"][field]  # Debezium reads rows outside of the stream: no true times
    for field in ("version", "name"):
        del found["source"][field]
    del found["ts_ms"]
    for place, field in ((found, "before"), (found, "after"), (found["source"], "lsid")):
        place[field] = inner(place[field])
    if found["updateDescription"] is not None:
        updated = found["updateDescription"]["updatedFields"]
        found["updateDescription"]["updatedFields"] = inner(updated)
    return found


@pytest.mark.parametrize(
    "recorded", RECORDED, ids=lambda one: f"{one['event']['operationType']} {one['key']}"
)
def test_a_message_says_what_debezium_sent_for_the_same_change(recorded: dict[str, Any]) -> None:
    made = message(json_util.loads(json.dumps(recorded["event"])))
    if recorded["key"] is None:
        assert made.is_empty
        return
    assert made.key is not None
    assert made.value is not None
    assert made.key.decode() == recorded["key"]
    assert comparable(made.value.decode()) == comparable(recorded["value"])
    assert list(json.loads(made.value)) == list(json.loads(recorded["value"]))
    assert list(json.loads(made.value)["source"]) == list(json.loads(recorded["value"])["source"])


@pytest.mark.parametrize("recorded", RECORDED, ids=range(len(RECORDED)))
def test_the_schema_accepts_what_debezium_sent(recorded: dict[str, Any]) -> None:
    if recorded["key"] is not None:
        jsonschema.validate(json.loads(recorded["key"]), KEY)
        jsonschema.validate(json.loads(recorded["value"]), VALUE)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("value", IDS.values(), ids=IDS)
def test_every_message_fits_the_schema(value: Any, operation: str) -> None:
    made = message(change(operation, value))
    assert made.key is not None
    assert made.value is not None
    jsonschema.validate(json.loads(made.key), KEY)
    jsonschema.validate(json.loads(made.value), VALUE)


@pytest.mark.parametrize(
    ("operation", "letter"),
    [("insert", "c"), ("update", "u"), ("replace", "u"), ("delete", "d"), ("read", "r")],
)
def test_the_operation_is_a_letter(operation: str, letter: str) -> None:
    value = json.loads(message(change(operation, 1)).value or b"")
    assert value["op"] == letter
    assert value["source"]["snapshot"] == ("true" if operation == "read" else "false")
    assert (value["after"] is None) is (operation == "delete")


def test_a_message_without_images_has_nulls_for_them() -> None:
    event = change("update", 1) | {"fullDocument": None}
    del event["fullDocumentBeforeChange"]
    value = json.loads(message(event).value or b"")
    assert (value["before"], value["after"]) == (None, None)


def test_truncated_arrays_have_field_and_size() -> None:
    truncated = [{"field": 'a."newSize":', "newSize": 3}]
    event = change("update", 1) | {"updateDescription": {"truncatedArrays": truncated}}
    value = json.loads(message(event).value or b"")
    assert value["updateDescription"] == {
        "removedFields": None,
        "updatedFields": None,
        "truncatedArrays": [{"field": 'a."newSize":', "size": 3}],
    }


def test_a_sharded_document_is_named_by_its_id_alone() -> None:
    event = change("insert", 1) | {"documentKey": {"region": "eu", "_id": Int64(1)}}
    assert message(event).key == b'{"id":"1"}'


@pytest.mark.parametrize("operation", ["drop", "rename", "invalidate", "snapshotEnd", "", "new"])
def test_debezium_sends_nothing_for_an_operation_that_is_not_a_letter(operation: str) -> None:
    assert message(change(operation, 1)).is_empty
