"""Redpanda Connect with the input mongodb_cdc."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.migrate.conftest import Migrate

SHOP = """
input:
  label: orders
  mongodb_cdc:
    url: mongodb://db:27017/?replicaSet=${SET:rs0}
    database: shop
    username: me
    password: ${MONGODB_PW}
    collections: [orders, users]
    checkpoint_cache: positions
    stream_snapshot: true
cache_resources:
  - label: positions
    file: {directory: /data}
"""
KAFKA = """
output:
  kafka_franz:
    seed_brokers: ["a:9092", "b:9092"]
    topic: cdc.${! metadata("collection") }
    max_in_flight: 10
"""
DATA = "826B0976B0000000022B022C0100296E5A1004B8575438F84246579F11435569777D53461E5F6964002B140004"


def test_an_input_becomes_a_scope_a_handler_and_a_route(migrate: Migrate) -> None:
    done = migrate("redpanda", SHOP + KAFKA)
    ends = [{"operationType": "invalidate"}, {"ns.coll": {"$in": ["orders", "users"]}}]
    assert done.config == {
        "mongodb": {"uri": "mongodb://me:${MONGODB_PW}@db:27017/?replicaSet=${SET:-rs0}"},
        "scopes": [
            {
                "name": "orders",
                "database": "shop",
                "pipeline": [{"$match": {"$or": ends}}],
                "full_document": "lookup",
                "snapshot": "initial",
            }
        ],
        "handlers": {
            "kafka": {
                "type": "kafka",
                "topic": "cdc.{collection}",
                "bootstrap_servers": "a:9092,b:9092",
                "envelope": "document",
                "json": "canonical",
            }
        },
        "routes": [
            {"scope": "orders", "namespaces": ["shop.orders", "shop.users"], "handlers": ["kafka"]}
        ],
    }
    assert done.lost.keys() == {"output.kafka_franz.metadata"}


OUTPUTS: list[tuple[str, dict[str, Any], set[str]]] = [
    (
        "nats_jetstream: {urls: ['nats://n'], subject: 'a.${! @collection }', x: 1}",
        {"type": "nats", "servers": ["nats://n"], "subject": "a.{collection}"},
        {"output.nats_jetstream.x", "output.nats_jetstream.metadata"},
    ),
    (
        "redis_streams: {url: 'redis://r', stream: s, max_length: 9}",
        {"type": "redis", "url": "redis://r", "stream": "s", "max_length": 9},
        {"output.redis_streams.metadata"},
    ),
    (
        "http_client: {url: 'https://x/y', verb: PUT, headers: {a: b}}",
        {"type": "http", "url": "https://x/y", "method": "PUT", "headers": {"a": "b"}},
        {"output.http_client.metadata"},
    ),
    (
        "redpanda: {seed_brokers: [b], topic: '${! json(\"a\") }', tls: {enabled: true},"
        " sasl: [{mechanism: PLAIN, username: u, password: hush}]}",
        {
            "topic": "{database}.{collection}",
            "security_protocol": "sasl_ssl",
            "password": "${KAFKA_PASSWORD}",
        },
        {"output.redpanda.topic", "output.redpanda.metadata"},
    ),
    (
        "aws_s3: {bucket: x}",
        {"type": "jsonl", "path": "data/orders-jsonl.jsonl"},
        {"output", "output.aws_s3.bucket"},
    ),
]


@pytest.mark.parametrize(("output", "handler", "lost"), OUTPUTS)
def test_outputs(migrate: Migrate, output: str, handler: dict[str, Any], lost: set[str]) -> None:
    text = f"{SHOP}\npipeline:\n  processors:\n    - mapping: root = this\noutput:\n  {output}\n"
    done = migrate("redpanda", text)
    assert {name: done.handler.get(name) for name in handler} == handler
    assert done.lost.keys() == {"pipeline.processors", *lost}
    assert "hush" not in done.text + done.error


def test_a_checkpoint_is_the_start(migrate: Migrate, tmp_path: Path) -> None:
    checkpoint = tmp_path / "mongodb_cdc_checkpoint"
    checkpoint.write_text(f'{{"_data":"{DATA}"}}')
    scope = migrate("redpanda", SHOP + KAFKA, "--offsets", str(checkpoint)).scope
    assert (scope["resume_after"], "snapshot" in scope) == ({"_data": DATA}, False)
    checkpoint.write_text("826B")
    done = migrate("redpanda", SHOP + KAFKA, "--offsets", str(checkpoint))
    assert (done.code, "no resume token in Extended JSON" in done.error) == (2, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input: {mysql_cdc: {dsn: x}}", "mysql_cdc"),
        ("a: [", "is no YAML"),
        ("- 1", "only the input mongodb_cdc"),
        ("", "only the input mongodb_cdc"),
    ],
)
def test_a_file_that_cannot_be_migrated_is_one_line(
    migrate: Migrate, text: str, message: str
) -> None:
    done = migrate("redpanda", text)
    assert (done.code, done.text) == (2, "")
    (line,) = done.error.splitlines()
    assert message in line
