"""What each setting accepts, and its default."""

from typing import Any

import pytest

from tailrace.config.handlers import (
    JsonlHandlerSettings,
    LogHandlerSettings,
    ParquetHandlerSettings,
    PythonHandlerSettings,
)
from tailrace.config.store import MemoryStoreSettings, MongodbStoreSettings, SqliteStoreSettings
from tests.unit.config.files import minimal, parse


@pytest.mark.parametrize(
    "section", ["store", "checkpoint", "delivery", "supervisor", "http", "logging"]
)
def test_a_section_without_keys_has_its_defaults(section: str) -> None:
    assert parse(minimal(**{section: None})) == parse(minimal(**{section: {}})) == parse(minimal())


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
    assert handlers == {
        "log": LogHandlerSettings(type="log", level="debug"),
        "audit.1": JsonlHandlerSettings(type="jsonl", path="x", json="canonical", fsync=False),
        "mine": PythonHandlerSettings(type="python", target="a.b:c.d", concurrency=8),
        "lake": ParquetHandlerSettings(type="parquet", path="s3://bucket/lake", segment_seconds=60),
    }
