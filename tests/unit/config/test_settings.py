"""What each setting takes, and what it is where it is left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tailrace.config import (
    JsonlHandlerSettings,
    LogHandlerSettings,
    MemoryStoreSettings,
    MongodbStoreSettings,
    ParquetHandlerSettings,
    PythonHandlerSettings,
    SqliteStoreSettings,
)
from tests.unit.config.files import (
    minimal,
    parse,
)


@pytest.mark.parametrize(
    "section", ["store", "checkpoint", "delivery", "supervisor", "http", "logging"]
)
def test_a_section_without_keys_has_its_defaults(section: str) -> None:
    assert parse(minimal(**{section: None})) == parse(minimal(**{section: {}})) == parse(minimal())


def test_a_key_without_a_value_has_its_default() -> None:
    settings = parse(minimal(http={"port": None}, delivery={"retry": None, "lanes": 3}))
    assert settings.http.port == 9464
    assert settings.delivery.lanes == 3


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ({"type": "sqlite", "path": "x"}, SqliteStoreSettings),
        ({"path": "x"}, SqliteStoreSettings),
        ({"type": None}, SqliteStoreSettings),
        ({"type": "mongodb", "database": "d"}, MongodbStoreSettings),
        ({"type": "memory"}, MemoryStoreSettings),
    ],
)
def test_the_type_decides_what_a_store_has(section: Any, kind: type) -> None:
    assert type(parse(minimal(store=section)).store) is kind


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
        minimal(
            scope={
                "collection": "orders",
                "pipeline": [{"$match": {"a": [1, None]}}, {"$unset": "fullDocument.secret"}],
                "full_document": "a word of a newer server",
                "full_document_before_change": "required",
                "show_expanded_events": True,
                "batch_size": 10,
                "max_await_time_ms": 50,
                "read_preference": "secondaryPreferred",
                "start_at": "2024-05-01T02:00:00+02:00",
                "split_large_events": True,
                "on_invalidate": "stop",
                "on_history_lost": "skip",
                "collation": {"locale": "en"},
                "comment": {"any": ["thing"]},
            }
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


@pytest.mark.parametrize(
    "written",
    [
        "scope: {database: null}",
        "scope: {database: tailrace, collection: other}, store: {type: mongodb}",
        "scope: {database: tailrace}, store: {type: memory}",
        "scope: {collection: orders}, store: {type: mongodb, database: shop}",
        "route: {operations: [insert, aTypeOfTheFuture], namespaces: ['*.*', 'shop.*']}",
        "handler: {type: log}",
    ],
)
def test_sections_that_do_not_contradict_each_other(written: str) -> None:
    assert parse(minimal(**yaml.safe_load(f"{{{written}}}")))
