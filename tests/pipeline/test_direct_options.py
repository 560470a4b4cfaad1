"""What the direct source is told: the configuration's own checks, under the options' names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from bson import ObjectId
from bson.timestamp import Timestamp

from tailrace.direct.options import OPTIONS, following
from tailrace.errors import ConfigurationError
from tailrace.model import ResumeToken

URI = "mongodb://localhost/"


def test_the_least_follows_the_cluster_from_now() -> None:
    found = following({"uri": URI})
    assert (found.scope.name, found.scope.kind) == ("direct", "cluster")
    assert found.start.token is None
    assert found.start.at_operation_time is None
    assert URI not in repr(found), "a connection string holds a password"


def test_every_option_arrives() -> None:
    found = following(
        {
            # Spark's options know no case.
            "uri": URI,
            "driver": "pymongo",
            "connecttimeoutseconds": "3",
            "name": "orders",
            "database": "shop",
            "collection": "orders",
            "pipeline": '[{"$match": {"documentKey._id": {"$oid": "0123456789abcdef01234567"}}}]',
            "fulldocument": "updateLookup",
            "fulldocumentbeforechange": "whenAvailable",
            "showexpandedevents": "true",
            "matchCollectionUuidForUpdateLookup": "true",
            "batchsize": "50",
            "maxawaittimems": "250",
            "readpreference": "secondaryPreferred",
            "startat": "2024-05-01T00:00:00Z",
            "splitlargeevents": "true",
            "oninvalidate": "stop",
            "collation": '{"locale": "de"}',
            "comment": "mine",
            "maxeventspertrigger": "10",
            "maxbytespertrigger": "1000",
            "idleseconds": "0",
        }
    )
    assert (str(found.scope), found.driver, found.connect_timeout_seconds) == (
        "shop.orders",
        "pymongo",
        3.0,
    )
    key = ObjectId("0123456789abcdef01234567")
    assert found.stream.pipeline == ({"$match": {"documentKey._id": key}},)
    assert found.stream.full_document == "updateLookup"
    assert found.stream.full_document_before_change == "whenAvailable"
    assert found.stream.show_expanded_events
    assert found.stream.match_collection_uuid_for_update_lookup
    assert found.stream.split_large_events
    assert found.stream.batch_size == 10, "no more than a trigger takes"
    assert found.stream.max_await_time_ms == 250
    assert found.stream.read_preference == "secondaryPreferred"
    assert found.stream.collation == {"locale": "de"}
    assert found.stream.comment == "mine"
    seconds = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp())
    assert found.start.at_operation_time == Timestamp(seconds, 0)
    assert found.stop_on_invalidate
    assert found.limits.max_bytes_per_trigger == 1000
    assert found.limits.idle_seconds == 0


def test_a_stage_alone_is_a_pipeline() -> None:
    found = following({"uri": URI, "pipeline": '{"$match": {"operationType": "insert"}}'})
    assert found.stream.pipeline == ({"$match": {"operationType": "insert"}},)


def test_a_token_to_begin_behind() -> None:
    found = following({"uri": URI, "startAt": '{"_data": "8263"}'})
    assert found.start.start_after == ResumeToken.of({"_data": "8263"})


def test_the_configuration_files_spelling_is_taken_too() -> None:
    found = following({"uri": URI, "full_document": "required", "max_await_time_ms": "5"})
    assert (found.stream.full_document, found.stream.max_await_time_ms) == ("required", 5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "uri: is required"),
        ({"uri": "localhost:27017"}, "uri: must be a connection string"),
        ({"uri": "mongodb://bob:se/cret@host/"}, "uri: is no usable MongoDB connection string"),
        ({"uri": "mongodb://host/?timeoutMS=5"}, "uri: timeoutMS would bound the server's"),
        ({"uri": URI, "driver": "pymong"}, "driver: must be motor or pymongo, not 'pymong'"),
        ({"uri": URI, "databse": "shop"}, "databse: is no option; did you mean 'database'?"),
        ({"uri": URI, "fulldocumnet": "x"}, "did you mean 'fullDocument'?"),
        ({"uri": URI, "path": "shop"}, "path: is no option; known: uri, "),
        ({"uri": URI, "collection": "orders"}, "collection: needs the key database beside it"),
        ({"uri": URI, "database": "a.b"}, "database: a database's name has no '.'"),
        ({"uri": URI, "database": "admin"}, "database: the server opens no change stream on"),
        ({"uri": URI, "pipeline": "[{"}, "pipeline: must be (Extended) JSON"),
        ({"uri": URI, "pipeline": "7"}, "pipeline: must be a list, not 7"),
        ({"uri": URI, "pipeline": '[{"match": 1}]'}, "pipeline[0]: a stage is a mapping"),
        ({"uri": URI, "startAt": "yesterday"}, "startAt: must be now, or an ISO 8601 time"),
        ({"uri": URI, "startAt": "2024-05-01T00:00:00"}, "startAt: needs a time with an offset"),
        ({"uri": URI, "startAt": "{_data"}, "startAt: must be (Extended) JSON"),
        ({"uri": URI, "onInvalidate": "halt"}, "onInvalidate: must be continue or stop"),
        ({"uri": URI, "maxAwaitTimeMS": "soon"}, "maxAwaitTimeMS: must be a whole number"),
        ({"uri": URI, "maxEventsPerTrigger": "0"}, "maxEventsPerTrigger: must be greater than 0"),
        ({"uri": URI, "maxBytesPerTrigger": "1.5"}, "maxBytesPerTrigger: must be a whole number"),
        ({"uri": URI, "idleSeconds": "-1"}, "idleSeconds: must be at least 0, not -1"),
        ({"uri": URI, "name": "a b"}, "name: must begin with a letter or digit"),
    ],
)
def test_what_cannot_be_is_told_under_the_options_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        following(options)
    (problem,) = refused.value.problems
    assert said in str(problem)
    assert "cret" not in str(problem)


def test_every_option_is_documented() -> None:
    text = (
        Path(__file__).parents[2] / "service" / "tailrace" / "pipeline" / "README.md"
    ).read_text()
    section = text.partition("## Directly from the server")[2]
    assert [name for name in OPTIONS if f"`{name}`" not in section] == []


def test_every_problem_comes_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        following({"batchSize": "0", "pipeline": "{", "idleSeconds": "x", "colection": "orders"})
    assert {problem.path for problem in refused.value.problems} == {
        "uri",
        "batchSize",
        "pipeline",
        "idleSeconds",
        "colection",
    }
