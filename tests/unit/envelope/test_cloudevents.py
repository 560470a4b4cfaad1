"""The CloudEvents envelope, against the JSON schema of the specification, version 1.0.2."""

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from bson import json_util

from tailrace.envelope import Message, messages
from tailrace.event import ChangeEvent
from tests.scripted.wire import in_order
from tests.unit.envelope.changes import IDS, OPERATIONS, TOKEN, change

# https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/cloudevents.json, and of
# spec.md: attributes of producers have no null, and a time is RFC 3339.
TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("id", "type", "subject", "datacontenttype"), TEXT),
        "specversion": {"const": "1.0"},
        "source": {**TEXT, "format": "uri-reference", "pattern": r"^[!-~]+$"},
        "dataschema": {**TEXT, "format": "uri"},
        "time": {**TEXT, "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"},
        "data": {"type": ["object", "string", "number", "array", "boolean", "null"]},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
    "required": ["id", "source", "specversion", "type"],
    "patternProperties": {"^[a-z0-9]+$": {}},
    "additionalProperties": False,
}


def message(event: dict[str, Any], scope: str = "orders") -> Message:
    return messages([ChangeEvent(in_order(event))], scope, "cloudevents")[0]


def structured(event: dict[str, Any], scope: str = "orders") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message(event, scope).value or b"")
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.mark.parametrize("operation", [*OPERATIONS, "drop", "snapshotEnd", "invalidate"])
@pytest.mark.parametrize("value", IDS.values(), ids=IDS)
def test_every_message_fits_the_schema(value: Any, operation: str) -> None:
    event = change(operation, value)
    found, made = structured(event), ChangeEvent(in_order(event))
    assert found["type"] == f"com.mongodb.change.{operation}"
    assert found.get("subject") == made.key_text
    assert found["datacontenttype"] == "application/json"
    relaxed = json_util.dumps(made.document, json_options=json_util.RELAXED_JSON_OPTIONS)
    assert found["data"] == json.loads(relaxed)


def test_the_time_is_the_servers_clock_or_else_the_oplog_time() -> None:
    event = change("insert", 1)
    assert structured(event)["time"] == "2026-01-01T00:00:00.123Z"
    for odd in ("x", datetime(1960, 1, 1, tzinfo=UTC)):
        assert structured({**event, "wallTime": odd})["time"] == "2026-01-01T00:00:00Z"
    del event["wallTime"], event["clusterTime"]
    assert "time" not in structured(event)


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        ({"_data": TOKEN}, TOKEN),
        ({"_data": TOKEN, "_typeBits": b"x"}, None),
        ({"_data": "not hex"}, None),
        ({"snapshot": "s", "_id": 7}, '{"snapshot":"s","_id":{"$numberInt":"7"}}'),
        ({}, "{}"),
    ],
    ids=repr,
)
def test_the_id_is_the_token_or_the_whole_id_of_a_row(
    identity: dict[str, Any], text: str | None
) -> None:
    whole = json_util.dumps(identity, json_options=json_util.CANONICAL_JSON_OPTIONS)
    found = structured({**change("insert", 1), "_id": identity})["id"]
    assert found == text or (text is None and json.loads(found) == json.loads(whole))


@pytest.mark.parametrize("scope", ["orders", "größe 1", "a/b"])
def test_the_source_is_a_uri_of_the_scope(scope: str) -> None:
    sources = {"orders": "orders", "größe 1": "gr%C3%B6%C3%9Fe%201", "a/b": "a%2Fb"}
    assert structured(change("insert", 1), scope)["source"] == f"/tailrace/{sources[scope]}"


def test_the_binary_mode_has_the_attributes_as_headers_and_the_event_as_its_body() -> None:
    made = message(change("insert", 'a"b'))
    whole = json.loads(made.value or b"")
    assert json.loads(made.data or b"") == whole.pop("data")
    assert dict(made.headers) == whole


def test_an_event_without_a_type_has_a_type_all_the_same() -> None:
    event = change("insert", 1)
    del event["operationType"]
    assert structured(event)["type"] == "com.mongodb.change"
