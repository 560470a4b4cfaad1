"""The commands of a change stream carry each option where the specification says, or not at all."""

from dataclasses import fields, replace
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.stream import ChangeStreamOptions, fingerprint
from tailrace.stream.aggregate import OPEN_MS, request

ORDERS, SHOP, ALL = Scope("a", "shop", "orders"), Scope("b", "shop"), Scope("c")
TOKEN = ResumeToken.of({"_data": "82AB"})
MATCH = {"$match": {"operationType": "insert"}}
PLAIN = ChangeStreamOptions()


def test_only_options_that_are_set_are_sent() -> None:
    made = request(ALL, PLAIN, StartPoint())
    assert list(made.aggregate.items()) == [
        ("aggregate", 1),
        ("pipeline", [{"$changeStream": {"allChangesForCluster": True}}]),
        ("cursor", {"batchSize": 0}),
        ("maxTimeMS", OPEN_MS),
    ]
    assert (made.database, made.get_more, made.read_preference) == ("admin", {}, None)


def test_zero_and_false_and_empty_are_values() -> None:
    options = ChangeStreamOptions(batch_size=0, max_await_time_ms=0, comment="", collation={})
    made = request(ORDERS, options, StartPoint())
    assert (made.aggregate["comment"], made.aggregate["collation"]) == ("", {})
    assert made.get_more == {"batchSize": 0, "maxTimeMS": 0, "comment": ""}


def test_the_pipeline_follows_and_the_split_comes_last() -> None:
    options = ChangeStreamOptions(pipeline=(MATCH, {"$nonsense": 1}), split_large_events=True)
    made = request(ORDERS, options, StartPoint())
    assert made.aggregate["pipeline"] == [
        {"$changeStream": {}},
        MATCH,
        {"$nonsense": 1},
        {"$changeStreamSplitLargeEvent": {}},
    ]


def test_the_server_is_not_asked_for_documents_that_are_looked_up_here() -> None:
    """Nor which collection they are of. So a token of a stream without documents is valid."""
    options = ChangeStreamOptions(
        full_document="lookup", match_collection_uuid_for_update_lookup=True
    )
    assert request(ORDERS, options, StartPoint()).aggregate["pipeline"] == [{"$changeStream": {}}]
    assert fingerprint(ORDERS, options) == fingerprint(ORDERS, PLAIN)


def test_a_start_point_is_passed_on_as_it_is() -> None:
    """Which options exclude one another is the server's to say."""
    start = StartPoint(TOKEN, TOKEN, Timestamp(1, 2))
    assert request(ORDERS, PLAIN, start).aggregate["pipeline"][0]["$changeStream"] == {
        "resumeAfter": TOKEN.wire,
        "startAfter": TOKEN.wire,
        "startAtOperationTime": Timestamp(1, 2),
    }


CHANGES: dict[str, Any] = {
    "pipeline": (MATCH,),
    "full_document": "updateLookup",
    "full_document_before_change": "required",
    "show_expanded_events": True,
    "match_collection_uuid_for_update_lookup": True,
    "collation": {"locale": "de"},
    "split_large_events": True,
}
READING: dict[str, Any] = {
    "batch_size": 9,
    "max_await_time_ms": 9,
    "idle_await_ms": 9,
    "comment": "other",
    "read_preference": "nearest",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_fingerprint_changes_with_what_a_token_depends_on(name: str) -> None:
    changed = replace(PLAIN, **{name: CHANGES[name]})
    assert fingerprint(ORDERS, changed) != fingerprint(ORDERS, PLAIN)


@pytest.mark.parametrize("name", READING)
def test_a_fingerprint_stays_with_how_the_stream_is_read(name: str) -> None:
    changed = replace(PLAIN, **{name: READING[name]})
    assert fingerprint(ORDERS, changed) == fingerprint(ORDERS, PLAIN)
    assert {field.name for field in fields(ChangeStreamOptions)} == CHANGES.keys() | READING.keys()


def test_a_fingerprint_changes_with_the_target_and_not_with_the_name() -> None:
    targets = [ORDERS, SHOP, ALL, Scope("a", "shop", "items"), Scope("a", "shop.orders")]
    targets += [Scope("a", "cluster")]
    assert len({fingerprint(scope, PLAIN) for scope in targets}) == len(targets)
    assert fingerprint(replace(ORDERS, name="z"), PLAIN) == fingerprint(ORDERS, PLAIN)


def test_a_fingerprint_knows_types_and_the_order_of_stages() -> None:
    one, other = {"$match": {"a": 1}}, {"$match": {"a": Timestamp(1, 0)}}
    assert _printed(one) != _printed(other)
    assert _printed(one, other) != _printed(other, one)
    assert _printed(one) == _printed({"$match": {"a": 1}})


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint(ORDERS, PLAIN) == "7dfd02b055a50e45"


def _printed(*pipeline: dict[str, Any]) -> str:
    return fingerprint(ORDERS, replace(PLAIN, pipeline=pipeline))
