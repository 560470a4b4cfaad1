"""The trace that a document carries: where it is read, and where it is sent."""

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.destinations.http.requests import Requests
from tailrace.destinations.http.settings import HttpHandlerSettings
from tailrace.destinations.kafka.records import Headers, Records
from tailrace.destinations.kafka.topics import TopicNames
from tailrace.event import ChangeEvent
from tailrace.event.trace_context import TraceContext, TraceField
from tailrace.model import Scope
from tests.unit.destinations.test_kafka_records import batch, event
from tests.unit.destinations.test_kafka_records import settings as kafka_settings

PARENT = f"00-{'4bf92f3577b34da6a3ce929d0e0e4736'}-{'00f067aa0ba902b7'}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-00"
SCOPE = Scope("orders", "shop", "orders", trace="meta.trace")
BOTH = {"traceparent": PARENT, "tracestate": "vendor=1"}


def traced(value: Any = PARENT, **more: Any) -> ChangeEvent:
    return event(fullDocument={"_id": 7, "n": 1, "meta": {"trace": value}}, **more)


@pytest.mark.parametrize(
    ("value", "context"),
    [
        (PARENT, TraceContext(PARENT)),
        (BOTH, TraceContext(PARENT, "vendor=1")),
        ({"traceparent": PARENT, "tracestate": 7}, TraceContext(PARENT)),
        (f"01{PARENT[2:]}-more", TraceContext(f"01{PARENT[2:]}-more")),
    ],
)
def test_a_trace_is_read_from_the_field_of_a_document(value: Any, context: TraceContext) -> None:
    assert TraceField("meta.trace", "orders").of(traced(value)) == context


WRONG = [
    *(
        7,
        "",
        "x",
        f"{PARENT}-more",
        f"ff{PARENT[2:]}",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}\r\n",
    ),
    *(
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        [PARENT],
        {},
        {"traceparent": 1},
    ),
]


def test_anything_else_in_the_field_is_ignored_and_said_once_without_the_value() -> None:
    field = TraceField("meta.trace", "orders")
    with capture_logs() as logs:
        assert [field.of(traced(value)) for value in WRONG] == [None] * len(WRONG)
    (line,) = logs
    assert (line["event"], line["scope"], line["field"]) == (
        "trace_context.ignored",
        "orders",
        "meta.trace",
    )
    assert PARENT not in str(line)


def test_a_document_without_the_field_has_no_trace_and_nothing_is_said() -> None:
    field = TraceField("meta.trace", "orders")
    without = [event("delete"), event(fullDocument=None), traced(None)]
    without += [event(fullDocument={"_id": 7}), event(fullDocument={"_id": 7, "meta": PARENT})]
    with capture_logs() as logs:
        assert [field.of(each) for each in without] == [None] * len(without)
    assert logs == []


def test_an_update_without_its_document_has_the_trace_that_it_sets() -> None:
    changed = {"updatedFields": {"meta.trace": PARENT}, "removedFields": []}
    field = TraceField("meta.trace", "orders")
    assert field.of(event("update", updateDescription=changed)) == TraceContext(PARENT)


def headers_of(*events: ChangeEvent, **more: Any) -> list[Headers]:
    given = kafka_settings(**more)
    names = TopicNames(given.topic, given.prefix)
    return [made.headers for made in Records(given, names, SCOPE).of(batch(*events))]


def test_kafka_gets_headers_even_without_others() -> None:
    both, none = headers_of(traced(BOTH), event(), headers=False)
    assert both == [("traceparent", PARENT.encode()), ("tracestate", b"vendor=1")]
    assert none == []
    (made,) = headers_of(traced(), envelope="cloudevents", content_mode="binary")
    assert dict(made)["ce_traceparent"] == dict(made)["traceparent"] == PARENT.encode()


def test_fields_that_are_left_out_of_the_message_still_carry_the_trace() -> None:
    given = kafka_settings(envelope="document", fields={"leave_out": ["meta"]})
    (made,) = Records(given, TopicNames(given.topic, given.prefix), SCOPE).of(batch(traced()))
    assert json.loads(made.value or b"") == {"_id": 7, "n": 1}
    assert dict(made.headers)["traceparent"] == PARENT.encode()


def requests(**more: Any) -> Requests:
    given = {"type": "http", "url": "http://localhost/", **more}
    return Requests(HttpHandlerSettings.model_validate(given), SCOPE)


def test_http_gets_the_header_of_w3c() -> None:
    made = requests().of_event(traced(BOTH), "orders")
    assert made is not None
    assert made.headers["traceparent"] == PARENT
    assert made.headers["tracestate"] == "vendor=1"
    plain = requests().of_event(event(), "orders")
    assert plain is not None
    assert "traceparent" not in plain.headers


@pytest.mark.parametrize(
    ("second", "header"), [(PARENT, PARENT), (OTHER, None), (None, None)], ids=str
)
def test_a_request_of_several_events_has_the_header_if_all_have_the_same(
    second: Any, header: str | None
) -> None:
    made = requests(batch_size=2).of_batch([traced(), traced(second)], "orders")
    assert made is not None
    assert made.request.headers.get("traceparent") == header


def test_cloudevents_have_the_extension_in_both_modes() -> None:
    structured = requests(envelope="cloudevents").of_event(traced(BOTH), "orders")
    binary = requests(envelope="cloudevents", content_mode="binary").of_event(
        traced(BOTH), "orders"
    )
    assert structured is not None
    assert binary is not None
    body = json.loads(structured.body)
    assert {name: body[name] for name in BOTH} == BOTH
    assert body["data"] == json.loads(binary.body)
    assert binary.headers["ce-traceparent"] == binary.headers["traceparent"] == PARENT
    assert binary.headers["tracestate"] == "vendor=1"
    batches = requests(envelope="cloudevents", batch_size=2)
    made = batches.of_batch([traced(), traced(OTHER)], "orders")
    assert made is not None
    assert [each["traceparent"] for each in json.loads(made.request.body)] == [PARENT, OTHER]
