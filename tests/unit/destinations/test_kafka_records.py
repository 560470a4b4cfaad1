"""What is sent to Kafka for an event, and what is refused before anything is sent."""

import json
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from tailrace.destination.batch import Batch, ScopeContext
from tailrace.destination.names import Template
from tailrace.destinations.kafka.records import Record, Records
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.destinations.kafka.topics import TopicNames
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tests.scripted.sharded import SEQUENCES, ShardedCollection

SCOPE = ScopeContext("orders", 1, 1, structlog.get_logger(), CollectorRegistry())
KEY = b'{"_id":{"$numberInt":"7"}}'


def settings(**more: Any) -> KafkaHandlerSettings:
    given = {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "prefix": "app"}
    return KafkaHandlerSettings(**{**given, **more})


def event(operation: str = "insert", collection: str = "orders", **more: Any) -> ChangeEvent:
    document: dict[str, Any] = {
        "_id": {"_data": "8265"},
        "operationType": operation,
        "ns": {"db": "shop", "coll": collection},
        "documentKey": {"_id": 7},
    }
    return ChangeEvent.from_document(document | more)


def batch(*events: ChangeEvent) -> Batch:
    return Batch(events, SCOPE)


def records(*events: ChangeEvent, **more: Any) -> list[Record]:
    given = settings(**more)
    return Records(given, TopicNames(given.topic, given.prefix)).of(batch(*events))


def test_a_record_has_topic_key_value_and_headers() -> None:
    (made,) = records(event())
    assert (made.topic, made.key) == ("app.shop.orders", KEY)
    assert b'"operationType":"insert"' in (made.value or b"")
    assert dict(made.headers) == {
        "tailrace.operation": b"insert",
        "tailrace.event_id": b"8265",
        "tailrace.namespace": b"shop.orders",
        "tailrace.scope": b"orders",
    }


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({}, [KEY, KEY]),
        ({"envelope": "debezium"}, [b'{"id":"7"}'] * 2),
        ({"envelope": "document"}, [KEY]),
        ({"tombstones": False}, [KEY]),
    ],
)
def test_a_tombstone_follows_a_delete(more: dict[str, Any], keys: list[bytes]) -> None:
    made = records(event("delete"), **more)
    assert [each.key for each in made] == keys
    assert (made[-1].value is None) == (more != {"tombstones": False})


def test_cloud_events_have_the_headers_of_their_binding() -> None:
    (structured,) = records(event(), envelope="cloudevents")
    assert structured.headers == [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    (binary,) = records(event(), envelope="cloudevents", content_mode="binary")
    headers = dict(binary.headers)
    assert headers["ce_id"] == b"8265"
    assert headers["content-type"] == b"application/json"
    assert (binary.value or b"").startswith(b'{"_id":')


def test_events_without_a_form_in_the_envelope_are_not_sent() -> None:
    assert records(event("update"), envelope="document") == []


def test_fields_are_left_out() -> None:
    (made,) = records(
        event(fullDocument={"_id": 7, "a": 1, "b": 2}),
        envelope="document",
        fields={"leave_out": ["b"]},
    )
    assert made.value == b'{"_id":7,"a":1}'


LARGE = event(fullDocument={"_id": 7, "text": "x" * 2000})


def test_an_oversize_message_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(Refused) as refused:
        records(event(), LARGE, max_message_bytes=1000)
    assert "max_message_bytes (1000)" in refused.value.reasons[1]
    assert set(refused.value.reasons) == {1}


def test_with_on_oversize_leave_out_a_large_message_is_logged() -> None:
    with structlog.testing.capture_logs() as logs:
        made = records(event(), LARGE, max_message_bytes=1000, on_oversize="leave_out")
    assert [each.at for each in made] == [0]
    (line,) = logs
    assert line["event"] == "event.left_out"
    assert "max_message_bytes" in line["reason"]


def test_ddl_goes_to_its_topic_only() -> None:
    drop = ChangeEvent.from_document(
        {"_id": {"_data": "82"}, "operationType": "drop", "ns": {"db": "shop", "coll": "orders"}}
    )

    def of_ddl(**more: Any) -> list[Record]:
        given = settings(**more)
        return Records(given, TopicNames(given.topic, given.prefix)).of_ddl(drop, "orders")

    assert of_ddl() == []
    (made,) = of_ddl(ddl_topic="app.ddl")
    assert (made.topic, made.key) == ("app.ddl", None)
    assert dict(made.headers)["tailrace.operation"] == b"drop"


# --- names -----------------------------------------------------------------------------------


def test_illegal_characters_become_underscores_and_a_collision_is_refused() -> None:
    names = TopicNames(Template("{prefix}.{database}.{collection}"), "app")
    assert names.of(("shop", "a b$ä", "s")) == "app.shop.a_b__"
    assert names.of(("shop", "a b$ä", "s")) == "app.shop.a_b__"
    with pytest.raises(ValueError, match=r"both be the topic app\.shop\.a_b__"):
        names.of_scopes([Scope("other", "shop", "a_b$ä")])
    with pytest.raises(ValueError, match="cannot name a topic"):
        names.of(("shop", "x" * 250, "s"))


def test_collections_share_a_topic_whose_text_names_none() -> None:
    names = TopicNames(Template("all"), None)
    assert {names.of(("shop", each, "s")) for each in "ab"} == {"all"}


def test_an_event_whose_topic_collides_is_refused_alone() -> None:
    with pytest.raises(Refused) as refused:
        records(event(collection="a_b"), event(collection="a b"))
    assert set(refused.value.reasons) == {1}


# --- outcomes --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("envelope", ["document", "native", "debezium"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_compacted_topic_forgets_a_sharded_document_only_when_it_is_gone(
    name: str, envelope: str, version: int
) -> None:
    """And all its records have one key, however its shard key changes."""
    collection = ShardedCollection(version)
    SEQUENCES[name](collection, 7)
    last: dict[bytes | None, bytes | None] = {}
    for group in collection.sent:
        events = [ChangeEvent.from_document(each) for each in group]
        last |= {each.key: each.value for each in records(*events, envelope=envelope)}
    ((_, value),) = last.items()
    assert (value is not None) == bool(collection.living())
    if value is not None and envelope == "document":
        assert json.loads(value) == collection.living()[7]
