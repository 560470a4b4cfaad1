"""What each setting accepts, and its default."""

from datetime import UTC, datetime
from typing import Any

import bson
import pytest

from tailrace.assembly import stream_options, target
from tailrace.config import Settings
from tailrace.config.store import MemoryStoreSettings, MongodbStoreSettings, SqliteStoreSettings
from tailrace.event.codec import CODEC
from tailrace.handlers.jsonl import JsonlHandlerSettings
from tailrace.handlers.log import LogHandlerSettings
from tailrace.handlers.parquet import ParquetHandlerSettings
from tailrace.handlers.python import PythonHandlerSettings
from tailrace.snapshot.filter import text_of
from tailrace.stream import fingerprint
from tests.configuration import loads
from tests.unit.config.files import MINIMAL, minimal, parse


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


def following(at: str, **environ: str) -> Settings:
    """Settings whose scope names a date in its pipeline and in the filter of its snapshots."""
    stages = f"    pipeline: [{{$match: {{wallTime: {{$gte: {at}}}}}}}]\n"
    chosen = f"    snapshot: {{filter: {{at: {{$gte: {at}}}}}}}\n"
    return loads(MINIMAL.replace("handlers:\n  log", f"{stages}{chosen}handlers:\n  log"), environ)


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("2023-01-01", datetime(2023, 1, 1, tzinfo=UTC)),
        ("2023-01-01 10:00:00", datetime(2023, 1, 1, 10, tzinfo=UTC)),
        ("2023-01-01T10:00:00Z", datetime(2023, 1, 1, 10, tzinfo=UTC)),
        ("2023-01-01T12:00:00.5+02:00", datetime(2023, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("'2023-01-01'", "2023-01-01"),
        ('"${DAY}"', "2023-01-01"),
    ],
)
def test_a_date_of_the_file_is_a_date_for_the_server(written: str, date: Any) -> None:
    scope = following(written, DAY="2023-01-01").scopes[0]
    assert scope.snapshot.filter is not None
    for found, field in ((scope.snapshot.filter, "at"), (scope.pipeline[0]["$match"], "wallTime")):
        assert bson.decode(bson.encode(found), CODEC) == {field: {"$gte": date}}


def test_a_date_from_the_environment_is_one_too() -> None:
    filter = "database: shop\n    snapshot:\n      filter:\n        at: ${DAY}"
    settings = loads(MINIMAL.replace("database: shop", filter), {"DAY": "2023-01-01"})
    assert settings.scopes[0].snapshot.filter == {"at": datetime(2023, 1, 1, tzinfo=UTC)}


def test_one_moment_has_one_fingerprint_however_it_is_written() -> None:
    """Otherwise another zone in the file would look like another pipeline."""
    written = ("2023-01-01", "2023-01-01T00:00:00Z", "2023-01-01T02:00:00+02:00")
    scopes = [following(each).scopes[0] for each in written]
    assert len({fingerprint(target(scope), stream_options(scope)) for scope in scopes}) == 1
    assert len({text_of(scope.snapshot.filter) for scope in scopes}) == 1
