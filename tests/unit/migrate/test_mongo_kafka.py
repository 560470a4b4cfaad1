"""Configurations of MongoDB's own connector for Kafka Connect."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.migrate.conftest import Migrate

FILES = Path(__file__).parents[2] / "migrate" / "files"
CLASS = "com.mongodb.kafka.connect.MongoSourceConnector"
SHOP = {
    "connector.class": CLASS,
    "connection.uri": "mongodb://me:hush@db/?replicaSet=rs0",
    "database": "shop",
    "collection": "orders",
    "producer.override.bootstrap.servers": "kafka:9092",
}


def connector(options: dict[str, Any]) -> str:
    return json.dumps({"name": "shop", "config": {**SHOP, **options}})


def test_a_connector_becomes_a_scope_a_handler_and_a_route(migrate: Migrate) -> None:
    pipeline = '[{"$match": {"operationType": "insert"}}]'
    done = migrate("mongo-kafka", connector({"pipeline": pipeline, "topic.prefix": "cdc"}))
    assert done.config == {
        "mongodb": {"uri": "mongodb://me:${MONGODB_PASSWORD}@db/?replicaSet=rs0"},
        "scopes": [
            {
                "name": "shop",
                "database": "shop",
                "collection": "orders",
                "pipeline": [{"$match": {"operationType": "insert"}}],
            }
        ],
        "handlers": {
            "kafka": {
                "type": "kafka",
                "envelope": "native",
                "topic": "cdc.{database}.{collection}",
                "bootstrap_servers": "kafka:9092",
            }
        },
        "routes": [{"scope": "shop", "handlers": ["kafka"]}],
    }
    assert done.lost.keys() == {"output.json.formatter", "output.format.key"}
    assert "hush" not in done.text + done.error


@pytest.mark.parametrize(
    ("options", "scope", "handler"),
    [
        ({"change.stream.full.document": "updateLookup"}, {"full_document": "lookup"}, {}),
        (
            {
                "change.stream.full.document": "updateLookup",
                "pipeline": '[{"$match": {"fullDocument.a": 1}}]',
            },
            {"full_document": "updateLookup"},
            {},
        ),
        (
            {"change.stream.full.document.before.change": "required", "poll.await.time.ms": "9"},
            {"full_document_before_change": "required", "max_await_time_ms": 9},
            {},
        ),
        (
            {"publish.full.document.only": True},
            {
                "full_document": "lookup",
                "pipeline": [{"$match": {"operationType": {"$ne": "delete"}}}],
            },
            {"envelope": "document"},
        ),
        (
            {
                "publish.full.document.only": "true",
                "publish.full.document.only.tombstone.on.delete": "true",
            },
            {"full_document": "lookup", "pipeline": None},
            {"envelope": "document"},
        ),
        ({"copy.existing": "true"}, {"snapshot": "initial"}, {}),
        (
            {
                "startup.mode": "copy_existing",
                "startup.mode.copy.existing.pipeline": '[{"$match": {"a": {"$gt": 1}}}]',
            },
            {"snapshot": {"mode": "initial", "filter": {"a": {"$gt": 1}}}},
            {},
        ),
        (
            {
                "startup.mode": "timestamp",
                "startup.mode.timestamp.start.at.operation.time": "1767225600",
            },
            {"start_at": "2026-01-01T00:00:00+00:00", "snapshot": None},
            {},
        ),
        (
            {
                "startup.mode": "timestamp",
                "startup.mode.timestamp.start.at.operation.time": (
                    '{"$timestamp": {"t": 1767225600, "i": 3}}'
                ),
            },
            {"start_at": "2026-01-01T00:00:00+00:00"},
            {},
        ),
        (
            {
                "output.json.formatter": "com.mongodb.kafka.connect.source.json.formatter."
                "ExtendedJson",
                "topic.separator": "-",
                "topic.suffix": "v1",
            },
            {},
            {"json": "canonical", "topic": "{database}-{collection}-v1"},
        ),
        ({"topic.namespace.map": '{"shop.orders": "sales"}'}, {}, {"topic": "sales"}),
        ({"topic.namespace.map": '{"*": "all"}', "topic.prefix": "p"}, {}, {"topic": "p.all"}),
    ],
)
def test_options(
    migrate: Migrate, options: dict[str, Any], scope: dict[str, Any], handler: dict[str, Any]
) -> None:
    done = migrate("mongo-kafka", connector(options))
    assert {name: done.scope.get(name) for name in scope} == scope
    assert {name: done.handler.get(name) for name in handler} == handler


def test_no_option_is_dropped_in_silence(migrate: Migrate) -> None:
    names = (FILES / "mongo-kafka-options.txt").read_text().split()
    others = dict.fromkeys(names, "7") | SHOP | {"collation": "{}", "no.such": "1"}
    done = migrate("mongo-kafka", connector(others))
    assert [name for name, why in done.lost.items() if "unknown" in why] == ["no.such"]
    assert {"topic.mapper", "output.format.value", "pipeline", "server.api.version"} <= (
        done.lost.keys()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"connector.class": "com.mongodb.kafka.connect.MongoSinkConnector"}', "MongoSinkConn"),
        ('{"connector.class": "io.debezium.connector.mongodb.MongoDbConnector"}', "MongoDbConn"),
        (connector({"database": "a b"}), "scopes[0].database"),
    ],
)
def test_a_file_that_cannot_be_migrated_is_one_line(
    migrate: Migrate, text: str, message: str
) -> None:
    done = migrate("mongo-kafka", text)
    assert (done.code, done.text) == (2, "")
    (line,) = done.error.splitlines()
    assert message in line


def test_a_pipeline_that_yaml_cannot_have_is_named(migrate: Migrate) -> None:
    stage = '[{"$match": {"documentKey._id": {"$oid": "65a0b0c0d0e0f0a0b0c0d0e0"}}}]'
    assert "ObjectId" in migrate("mongo-kafka", connector({"pipeline": stage})).lost["pipeline"]
