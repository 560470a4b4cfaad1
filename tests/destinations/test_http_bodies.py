"""The bodies and headers of ``http``, by envelope."""

import json
from base64 import b64encode
from typing import Any
from urllib.parse import unquote

import pytest

from tailrace.event import ChangeEvent
from tailrace.testing import Changes
from tests.destinations.http_endpoint import SECRETS, Received, event, hook, hooked, receiving
from tests.destinations.http_receiver import verified
from tests.handlers import deliver
from tests.unit.envelope.changes import IDS, OPERATIONS

JSON, EVENT = "application/json", "application/cloudevents+json; charset=UTF-8"


@pytest.mark.parametrize("identity", IDS.values(), ids=IDS)
async def test_both_modes_of_cloudevents_say_the_same(identity: Any) -> None:
    events = [event(each, identity) for each in (*OPERATIONS, "drop", "snapshotEnd")]
    found = [await sent_as(mode, events) for mode in ("structured", "binary")]
    for structured, binary in zip(*found, strict=True):
        assert structured.headers["content-type"] == EVENT
        attributes = {
            name.removeprefix("ce-"): unquote(value)
            for name, value in binary.headers.items()
            if name.startswith("ce-")
        }
        attributes["datacontenttype"] = binary.headers["content-type"]
        assert structured.data == {**attributes, "data": binary.data}
        for each in (structured, binary):
            assert verified(each.request, each.body, SECRETS[0])
            assert "." not in each.headers["webhook-id"]
            assert unquote(each.headers["webhook-id"]) == structured.data["id"]


async def sent_as(mode: str, events: list[ChangeEvent]) -> list[Received]:
    given = {"envelope": "cloudevents", "content_mode": mode, "secret": SECRETS[0]}
    async with hooked(**given) as (endpoint, handler):
        for each in events:
            await deliver(handler, each)
    return endpoint.received


@pytest.mark.parametrize(
    ("envelope", "body", "key"),
    [
        ("native", b'{"_id":{"_data":', None),
        ("document", b'{"_id":1,"state":"new"}', '{"_id":{"$numberInt":"1"}}'),
        ("debezium", b'{"before":', '{"id":"1"}'),
    ],
)
async def test_a_request_of_one_event_is_its_message(
    envelope: str, body: bytes, key: str | None
) -> None:
    async with hooked(envelope=envelope, method="PUT") as (endpoint, handler):
        await deliver(handler, event())
    found = endpoint.only
    assert found.request.method == "PUT"
    assert found.headers["content-type"] == JSON
    assert found.body.startswith(body)
    assert unquote(found.headers.get("tailrace-key", "")) == (key or "")


async def test_headers_of_the_configuration_and_a_user_in_the_url_are_sent() -> None:
    given = {"Content-Type": "application/vnd.shop+json", "X-From": "tailrace"}
    async with receiving() as endpoint:
        url = endpoint.url.replace("://", "://user:p%40ss@")
        async with hook(url, headers=given) as handler:
            await deliver(handler, event())
    sent = endpoint.only.headers
    assert {name: sent[name] for name in given} == given
    assert sent["authorization"] == f"Basic {b64encode(b'user:p@ss').decode()}"


async def test_the_delete_of_a_document_is_null() -> None:
    async with hooked(envelope="document") as (endpoint, handler):
        await deliver(handler, event("delete"))
    assert endpoint.only.body == b"null"


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("envelope", ["native", "cloudevents", "document", "debezium"])
async def test_ddl_is_sent_where_the_envelope_has_a_form_for_it(envelope: str, size: int) -> None:
    async with hooked(envelope=envelope, batch_size=size) as (endpoint, handler):
        await deliver(handler, event("drop"))
    assert len(endpoint.received) == (envelope in ("native", "cloudevents"))


@pytest.mark.parametrize(
    ("envelope", "content_type", "first"),
    [
        ("native", JSON, b'[{"_id":{"_data":'),
        ("cloudevents", "application/cloudevents-batch+json; charset=UTF-8", b'[{"specversion":'),
        ("document", JSON, b'[{"key":{"_id":{"$numberInt":"0"}},"value":{"_id":0,"state":"new"}}'),
        ("debezium", JSON, b'[{"key":{"id":"0"},"value":{"before":null,'),
    ],
)
async def test_a_batch_is_one_request(envelope: str, content_type: str, first: bytes) -> None:
    events = [event("insert", number) for number in range(3)]
    given = {"envelope": envelope, "batch_size": 10, "secret": SECRETS[0]}
    async with hooked(**given) as (endpoint, handler):
        await deliver(handler, *events)
        await deliver(handler, *events)
    found, again = endpoint.received
    assert found.headers["content-type"] == content_type
    assert found.body.startswith(first)
    assert len(found.data) == 3
    assert verified(found.request, found.body, SECRETS[0])
    assert found.headers["webhook-id"] == again.headers["webhook-id"]


async def test_a_batch_can_be_lines() -> None:
    async with hooked(batch_size=10, batch_format="lines") as (endpoint, handler):
        await deliver(handler, *[event("insert", number) for number in range(3)])
    assert endpoint.only.headers["content-type"] == "application/x-ndjson"
    lines = endpoint.only.body.splitlines()
    assert [json.loads(line)["documentKey"]["_id"] for line in lines] == [0, 1, 2]


async def test_fields_and_json_apply_to_messages() -> None:
    given = {"envelope": "document", "json": "canonical", "fields": {"rename": {"state": "now"}}}
    async with hooked(**given) as (endpoint, handler):
        await deliver(handler, event())
    assert endpoint.only.data == {"_id": {"$numberInt": "1"}, "now": "new"}


async def test_a_body_of_megabytes_arrives() -> None:
    text = "x" * 3_000_000
    changes = Changes()
    async with hooked() as (endpoint, handler):
        await deliver(handler, changes.insert({"_id": 1, "text": text}))
    assert endpoint.only.data["fullDocument"]["text"] == text
