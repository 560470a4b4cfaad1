"""Each setting: what it takes, and what is said of anything else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.config import (
    JsonlHandlerSettings,
    LogHandlerSettings,
    MemoryCheckpointSettings,
    MongodbCheckpointSettings,
    ParquetHandlerSettings,
    PythonHandlerSettings,
    SqliteCheckpointSettings,
    parse,
)
from tests.unit.config.files import (
    MINIMAL,
    minimal,
    problems,
    problems_of_text,
    with_columns,
    with_handler,
    with_route,
    with_scope,
)


def test_the_defaults_are_the_contract() -> None:
    settings = parse(minimal())
    assert settings.mongodb.driver == "motor"
    assert settings.mongodb.connect_timeout_seconds == 10
    assert settings.checkpoint == SqliteCheckpointSettings(
        path="data/checkpoints.db", interval_seconds=1
    )
    delivery = settings.delivery
    assert (delivery.lanes, delivery.max_in_flight_bytes) == (64, 67_108_864)
    retry = delivery.retry
    assert (retry.attempts, retry.first_seconds, retry.cap_seconds) == (5, 0.5, 30)
    letters = delivery.dead_letters
    assert (letters.path, letters.max_consecutive) == ("data/dead-letters.jsonl", 100)
    assert delivery.on_failure == "dead_letter"
    assert (settings.supervisor.first_seconds, settings.supervisor.cap_seconds) == (0.5, 30)
    assert settings.shutdown.grace_seconds == 25
    http = settings.http
    assert (http.host, http.port, http.liveness_seconds) == ("127.0.0.1", 9464, 300)
    assert (settings.logging.level, settings.logging.format) == ("info", "json")
    (scope,) = settings.scopes
    assert scope.model_dump(exclude={"name", "database"}) == {
        "collection": None,
        "pipeline": (),
        "full_document": None,
        "full_document_before_change": None,
        "show_expanded_events": False,
        "batch_size": None,
        "max_await_time_ms": 1000,
        "read_preference": None,
        "start_at": "now",
        "resume_after": None,
        "start_after": None,
        "match_collection_uuid_for_update_lookup": None,
        "split_large_events": False,
        "transactions": "separate",
        "on_invalidate": "continue",
        "on_history_lost": "halt",
        "collation": None,
        "comment": None,
    }
    (route,) = settings.routes
    assert (route.operations, route.namespaces, route.handlers) == (None, None, ("log",))


@pytest.mark.parametrize("section", ["checkpoint", "delivery", "supervisor", "http", "logging"])
def test_a_section_without_keys_has_its_defaults(section: str) -> None:
    assert parse(minimal(**{section: None})) == parse(minimal(**{section: {}})) == parse(minimal())


def test_a_key_without_a_value_has_its_default() -> None:
    settings = parse(minimal(http={"port": None}, delivery={"retry": None, "lanes": 3}))
    assert settings.http.port == 9464
    assert settings.delivery.lanes == 3


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ({"store": "sqlite", "path": "x"}, SqliteCheckpointSettings),
        ({"path": "x"}, SqliteCheckpointSettings),
        ({"store": None}, SqliteCheckpointSettings),
        ({"store": "mongodb", "database": "d"}, MongodbCheckpointSettings),
        ({"store": "memory", "interval_seconds": 0.1}, MemoryCheckpointSettings),
    ],
)
def test_the_store_decides_what_a_checkpoint_has(section: Any, kind: type) -> None:
    assert type(parse(minimal(checkpoint=section)).checkpoint) is kind


def test_the_type_decides_what_a_handler_has() -> None:
    handlers = parse(
        minimal(
            handlers={
                "log": {"type": "log", "level": "debug"},
                "audit.1": {"type": "jsonl", "path": "x", "json": "canonical", "fsync": False},
                "mine": {"type": "python", "target": "a.b:c.d", "concurrency": 8},
                "lake": {"type": "parquet", "path": "s3://bucket/lake", "segment_seconds": 60},
            }
        )
    ).handlers
    assert list(handlers) == ["log", "audit.1", "mine", "lake"]
    assert handlers["log"] == LogHandlerSettings(type="log", level="debug")
    audit, mine = handlers["audit.1"], handlers["mine"]
    assert isinstance(audit, JsonlHandlerSettings)
    assert (audit.path, audit.json_format, audit.fsync) == ("x", "canonical", False)
    assert isinstance(mine, PythonHandlerSettings)
    assert (mine.target, mine.concurrency, mine.batch_size) == ("a.b:c.d", 8, 1000)
    lake = handlers["lake"]
    assert isinstance(lake, ParquetHandlerSettings)
    assert (lake.path, lake.documents) == ("s3://bucket/lake", "bson")
    assert (lake.segment_rows, lake.segment_bytes, lake.segment_seconds) == (50_000, 2**24, 60)


def test_everything_a_scope_can_have() -> None:
    (scope,) = parse(
        with_scope(
            collection="orders",
            pipeline=[{"$match": {"a": [1, None]}}, {"$unset": "fullDocument.secret"}],
            full_document="a word of a newer server",
            full_document_before_change="required",
            show_expanded_events=True,
            batch_size=10,
            max_await_time_ms=50,
            read_preference="secondaryPreferred",
            start_at="2024-05-01T02:00:00+02:00",
            split_large_events=True,
            on_invalidate="stop",
            on_history_lost="skip",
            collation={"locale": "en"},
            comment={"any": ["thing"]},
        )
    ).scopes
    assert scope.pipeline == ({"$match": {"a": [1, None]}}, {"$unset": "fullDocument.secret"})
    assert scope.full_document == "a word of a newer server"
    assert scope.start_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert scope.collation == {"locale": "en"}
    assert scope.comment == {"any": ["thing"]}


def test_settings_are_frozen() -> None:
    settings = parse(minimal())
    for section, key in [
        (settings, "http"),
        (settings.http, "port"),
        (settings.scopes[0], "name"),
        (settings.handlers["log"], "level"),
    ]:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, key, 1)
    assert isinstance(settings.scopes, tuple)
    assert isinstance(settings.routes[0].handlers, tuple)


DAY = 86_400

BAD = [
    # what data, which path, what is said
    ({}, "mongodb", "is required: The server to follow, told by uri or uri_file"),
    ({}, "scopes", "is required"),
    ({}, "handlers", "is required"),
    ({}, "routes", "is required"),
    (minimal(scopes=[]), "scopes", "needs at least one entry"),
    (minimal(routes=[]), "routes", "needs at least one entry"),
    (minimal(scopes={"name": "a"}), "scopes", "must be a list, not a mapping"),
    (minimal(scopes=["a"]), "scopes[0]", "must be a mapping, not 'a'"),
    (minimal(handlers=["log"]), "handlers", "must be a mapping, not a list"),
    (minimal(http=9464), "http", "must be a mapping, not 9464"),
    (minimal(scope=[]), "scope", "did you mean 'scopes'?"),
    (minimal(nonsense=1), "nonsense", "known here: mongodb, checkpoint, delivery"),
    # mongodb
    (minimal(mongodb={}), "mongodb.uri", "is required: The connection string; give either this or"),
    (minimal(mongodb={"uri": 5}), "mongodb.uri", "must be text"),
    (minimal(mongodb={"uri": "localhost:27017"}), "mongodb.uri", "mongodb://… or mongodb+srv://…"),
    (minimal(mongodb={"uri": "http://u:p@h"}), "mongodb.uri", "must be a connection string"),
    (minimal(mongodb={"uri": "mongodb://a b"}), "mongodb.uri", "must be a connection string"),
    (minimal(mongodb={"url": "x"}), "mongodb.url", "did you mean 'uri'?"),
    (
        minimal(mongodb={"uri": "mongodb://h", "driver": "pymongoo"}),
        "mongodb.driver",
        "must be motor or pymongo, not 'pymongoo'; did you mean 'pymongo'?",
    ),
    (
        minimal(mongodb={"uri": "mongodb://h", "connect_timeout_seconds": 0}),
        "mongodb.connect_timeout_seconds",
        "must be greater than 0, not 0",
    ),
    # checkpoint
    (minimal(checkpoint={"store": "redis"}), "checkpoint.store", "must be sqlite, mongodb or mem"),
    (minimal(checkpoint={"store": "mongo"}), "checkpoint.store", "did you mean 'mongodb'?"),
    (minimal(checkpoint={"store": 1}), "checkpoint.store", "must be sqlite, mongodb or memory"),
    (minimal(checkpoint="sqlite"), "checkpoint", "must be a mapping with the key store"),
    (
        minimal(checkpoint={"store": "mongodb", "path": "x"}),
        "checkpoint.path",
        "belongs to store: sqlite, not to store: mongodb",
    ),
    (
        minimal(checkpoint={"database": "x"}),
        "checkpoint.database",
        "belongs to store: mongodb, not to store: sqlite",
    ),
    (
        minimal(checkpoint={"store": "memory", "path": "x"}),
        "checkpoint.path",
        "belongs to store: sqlite, not to store: memory",
    ),
    (minimal(checkpoint={"pth": "x"}), "checkpoint.pth", "did you mean 'path'?"),
    (minimal(checkpoint={"path": " "}), "checkpoint.path", "must not be empty"),
    (minimal(checkpoint={"path": "a\0"}), "checkpoint.path", "NUL"),
    (
        minimal(checkpoint={"interval_seconds": 0}),
        "checkpoint.interval_seconds",
        "must be greater than 0, not 0",
    ),
    (
        minimal(checkpoint={"interval_seconds": float("nan")}),
        "checkpoint.interval_seconds",
        "must be",
    ),
    (
        minimal(checkpoint={"store": "mongodb", "database": "a.b"}),
        "checkpoint.database",
        "the collection has a key of its own",
    ),
    # delivery
    (minimal(delivery={"lanes": True}), "delivery.lanes", "must be a whole number, not true"),
    (
        minimal(delivery={"lanes": "1000"}),
        "delivery.lanes",
        "must be a whole number, not '1000'; take the quotes away",
    ),
    (minimal(delivery={"lanes": 1.5}), "delivery.lanes", "must be a whole number, not 1.5"),
    (minimal(delivery={"lanes": 0}), "delivery.lanes", "must be greater than 0, not 0"),
    (minimal(delivery={"lanes": -1}), "delivery.lanes", "must be greater than 0, not -1"),
    (
        minimal(delivery={"max_in_flight_bytes": "64 MB"}),
        "delivery.max_in_flight_bytes",
        "must be a whole number, not '64 MB'",
    ),
    (minimal(delivery={"retry": {"attempts": 0}}), "delivery.retry.attempts", "greater than 0"),
    (minimal(delivery={"retry": {"tries": 1}}), "delivery.retry.tries", "known here: attempts"),
    (
        minimal(delivery={"retry": {"first_seconds": 60}}),
        "delivery.retry.cap_seconds",
        "must not be below first_seconds, which is 60",
    ),
    (
        minimal(delivery={"dead_letters": {"max_consecutive": 0}}),
        "delivery.dead_letters.max_consecutive",
        "greater than 0",
    ),
    (
        minimal(delivery={"on_failure": "dead-letter"}),
        "delivery.on_failure",
        "must be dead_letter or halt, not 'dead-letter'; did you mean 'dead_letter'?",
    ),
    # the small ones
    (
        minimal(supervisor={"first_seconds": 2, "cap_seconds": 1}),
        "supervisor.cap_seconds",
        "must not be below first_seconds, which is 2",
    ),
    (minimal(supervisor={"cap_seconds": 2 * DAY}), "supervisor.cap_seconds", "at most 86400"),
    (minimal(shutdown={"grace_seconds": -1}), "shutdown.grace_seconds", "must be at least 0"),
    (minimal(shutdown={"grace_seconds": True}), "shutdown.grace_seconds", "a number, not true"),
    (minimal(http={"port": 65536}), "http.port", "must be at most 65535, not 65536"),
    (minimal(http={"port": -1}), "http.port", "must be at least 0, not -1"),
    (minimal(http={"host": ""}), "http.host", "must not be empty"),
    (minimal(logging={"level": "INFO"}), "logging.level", "must be debug, info, warning or error"),
    (minimal(logging={"format": 1}), "logging.format", "must be json or console, not 1"),
    # scopes
    (minimal(scopes=[{}]), "scopes[0].name", "is required: A name of yours"),
    (with_scope(name=5), "scopes[0].name", "must be text, not 5; put it in quotes"),
    (with_scope(name="a b"), "scopes[0].name", "hold only letters, digits"),
    (with_scope(name="-a"), "scopes[0].name", "must begin with a letter or digit"),
    (with_scope(name="a" * 101), "scopes[0].name", "at most 100 characters"),
    (with_scope(name="a\n"), "scopes[0].name", "hold only letters, digits"),
    (with_scope(batchsize=1), "scopes[0].batchsize", "did you mean 'batch_size'?"),
    (with_scope(batch_size="1000"), "scopes[0].batch_size", "take the quotes away"),
    (with_scope(batch_size=0), "scopes[0].batch_size", "must be greater than 0, not 0"),
    (with_scope(batch_size=2**31), "scopes[0].batch_size", "must be at most 2147483647"),
    (with_scope(max_await_time_ms=0), "scopes[0].max_await_time_ms", "greater than 0"),
    (with_scope(database="a/b"), "scopes[0].database", "cannot hold '/'"),
    (with_scope(database="shop.orders"), "scopes[0].database", "a key of its own"),
    (with_scope(database="a" * 64), "scopes[0].database", "at most 63 bytes"),
    (with_scope(collection="system.views"), "scopes[0].collection", "no change stream on system"),
    (with_scope(full_document=True), "scopes[0].full_document", "must be text, not true"),
    (
        with_scope(show_expanded_events="yes"),
        "scopes[0].show_expanded_events",
        "must be true or false, not 'yes'",
    ),
    (
        with_scope(split_large_events="true"),
        "scopes[0].split_large_events",
        "must be true or false, not 'true'; take the quotes away",
    ),
    (with_scope(show_expanded_events=1), "scopes[0].show_expanded_events", "true or false, not 1"),
    (
        with_scope(read_preference="secondaryprefered"),
        "scopes[0].read_preference",
        "did you mean 'secondaryPreferred'?",
    ),
    (with_scope(on_invalidate="halt"), "scopes[0].on_invalidate", "must be continue or stop"),
    (with_scope(on_history_lost="stop"), "scopes[0].on_history_lost", "must be halt or skip"),
    (with_scope(collation="en"), "scopes[0].collation", "must be a mapping, not 'en'"),
    (with_scope(start_at="yesterday"), "scopes[0].start_at", "must be now, or an ISO 8601 time"),
    (with_scope(start_at="2024-05-01T00:00:00"), "scopes[0].start_at", "with an offset"),
    (with_scope(start_at=datetime(2024, 5, 1)), "scopes[0].start_at", "with an offset"),
    (with_scope(start_at=1714521600), "scopes[0].start_at", "needs a time with an offset"),
    (with_scope(start_at="1969-12-31T23:59:59Z"), "scopes[0].start_at", "between 1970 and 2106"),
    (with_scope(start_at="0001-01-01T00:00:00+14:00"), "scopes[0].start_at", "1970 and 2106"),
    (with_scope(pipeline={"$match": {}}), "scopes[0].pipeline", "must be a list, not a mapping"),
    (with_scope(pipeline=["$match"]), "scopes[0].pipeline[0]", "must be a mapping, not '$match'"),
    (with_scope(pipeline=[{}]), "scopes[0].pipeline[0]", "one key, such as $match"),
    (with_scope(pipeline=[{"$a": 1, "$b": 1}]), "scopes[0].pipeline[0]", "one key"),
    (with_scope(pipeline=[{"match": 1}]), "scopes[0].pipeline[0]", "one key, such as $match"),
    (with_scope(pipeline=[{"$changeStream": {}}]), "scopes[0].pipeline[0]", "put in front by"),
    # the pipeline
    (with_columns(orders={}), "pipeline.columns.orders", "must be written database.collection"),
    (
        with_columns(**{"shop.orders": {"a": "number"}}),
        "pipeline.columns['shop.orders'].a",
        "must be string, long, double, boolean, timestamp or decimal, not 'number'",
    ),
    (
        with_columns(**{"shop.orders": {"a..b": "long"}}),
        "pipeline.columns['shop.orders']['a..b']",
        "must be the path of a field, as in customer.name",
    ),
    (
        with_columns(**{"shop.orders": {"a`b": "long"}}),
        "pipeline.columns['shop.orders'].a`b",
        "without any quotes",
    ),
    (
        with_columns(**{"shop.orders": {"Key": "long"}}),
        "pipeline.columns['shop.orders'].Key",
        "the view has a column of that name; read the field as document:Key",
    ),
    (
        with_columns(**{"shop.orders": {"total": "long", "Total": "long"}}),
        "pipeline.columns['shop.orders']",
        "'total' and 'Total' are one column to Spark",
    ),
    # handlers
    (with_handler(type="jsonl"), "handlers.mine.path", "is required: The file"),
    (
        with_handler(type="jsnl"),
        "handlers.mine.type",
        "must be log, jsonl, parquet or python, not 'jsnl'; d",
    ),
    (
        with_handler(type="kafka"),
        "handlers.mine.type",
        "must be log, jsonl, parquet or python, not 'kafka'",
    ),
    (with_handler(path="x"), "handlers.mine.type", "is required: log, jsonl, parquet or python"),
    (with_handler(type="log", path="x"), "handlers.mine.path", "belongs to type: jsonl, not to"),
    (with_handler(type="log", lvl="x"), "handlers.mine.lvl", "did you mean 'level'?"),
    (
        with_handler(type="jsonl", path="x", json="extended"),
        "handlers.mine.json",
        "relaxed or cano",
    ),
    (with_handler(type="parquet"), "handlers.mine.path", "is required: The lake"),
    (
        with_handler(type="parquet", path="x", documents="json"),
        "handlers.mine.documents",
        "must be bson, canonical or relaxed, not 'json'",
    ),
    (
        with_handler(type="parquet", path="x", segment_seconds=0),
        "handlers.mine.segment_seconds",
        "must be greater than 0, not 0",
    ),
    (
        with_handler(type="parquet", path="x", retry={"attempts": 3}),
        "handlers.mine.retry",
        "belongs to",
    ),
    (
        with_handler(type="jsonl", path="x", json_format="relaxed"),
        "handlers.mine.json_format",
        "no",
    ),
    (with_handler(type="jsonl", path="x", fsync="yes"), "handlers.mine.fsync", "true or false"),
    (minimal(handlers={"log": "jsonl"}), "handlers.log", "must be a mapping with the key type"),
    (minimal(handlers={"log": None}), "handlers.log", "must be a mapping with the key type"),
    (minimal(handlers={"a b": {"type": "log"}}), "handlers['a b']", "must begin with a letter"),
    (
        with_handler(type="python"),
        "handlers.mine.target",
        "is required: `package.module:coroutine`",
    ),
    *(
        (with_handler(type="python", target=target), "handlers.mine.target", "package.module:corou")
        for target in ("a.b.c", "a:", ":b", "a.:b", "a:b:c", "a b:c", "a:b()", "1a:b", "./a.py:b")
    ),
    (
        with_handler(type="python", target="a:b", concurrency=0),
        "handlers.mine.concurrency",
        "greater than 0",
    ),
    # routes
    (minimal(routes=[{"handlers": ["log"]}]), "routes[0].scope", "is required: The name of the sc"),
    (minimal(routes=[{"scope": "orders"}]), "routes[0].handlers", "is required"),
    (with_route(handlers=[]), "routes[0].handlers", "needs at least one entry"),
    (with_route(handlers="log"), "routes[0].handlers", "must be a list, not 'log'"),
    (with_route(handlers=[1]), "routes[0].handlers[0]", "must be text, not 1"),
    (with_route(operations=[]), "routes[0].operations", "leave the key out for all"),
    (with_route(operations=[True]), "routes[0].operations[0]", "must be text, not true"),
    (with_route(operation=["insert"]), "routes[0].operation", "did you mean 'operations'?"),
    (with_route(namespaces=[]), "routes[0].namespaces", "leave the key out for all"),
    (with_route(namespaces=["shop"]), "routes[0].namespaces[0]", "database.collection"),
]


@pytest.mark.parametrize(("data", "path", "told"), BAD, ids=[path for _, path, _ in BAD])
def test_a_bad_value_is_told_with_its_path(data: Any, path: str, told: str) -> None:
    found = problems(data)
    assert path in found
    assert told in found[path]


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("port: 'yes'", "http.port"),
        ("liveness_seconds: 1e999", "http.liveness_seconds"),
        ("liveness_seconds: .nan", "http.liveness_seconds"),
        ("liveness_seconds: 2024-05-01", "http.liveness_seconds"),
        ("host: 2024-05-01", "http.host"),
        ("host: 127", "http.host"),
    ],
)
def test_what_yaml_reads_as_another_kind(written: str, path: str) -> None:
    assert "must be" in problems_of_text(f"{MINIMAL}http:\n  {written}\n")[path]


def test_every_problem_is_told_at_once_in_the_order_of_the_file() -> None:
    found = problems_of_text(
        """\
routes:
  - scope: ordrs
    handlers: [log, audt]
mongodb:
  uri: ${URI}
  drivr: motor
scopes:
  - name: orders
    database: ${DB}
    batch_size: "5"
    start_at: 2024-05-01T00:00:00
handlers:
  audit: {type: jsonl}
  log: {type: log, level: loud}
http: {port: 1, port: 2}
"""
    )
    assert list(found) == [
        "routes[0].scope",
        "routes[0].handlers[1]",
        "mongodb.uri",
        "mongodb.drivr",
        "scopes[0].database",
        "scopes[0].batch_size",
        "scopes[0].start_at",
        "handlers.audit.path",
        "handlers.log.level",
        "http.port",
    ]


def test_messages_are_short_lines() -> None:
    for data, _, _ in BAD:
        for message in problems(data).values():
            assert "\n" not in message
            assert len(message) < 330
            assert "Input should" not in message
