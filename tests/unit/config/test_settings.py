"""What each setting accepts, and its default."""

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.assembly import stream_options, target
from tailrace.config.settings import Settings
from tailrace.config.store import MemoryStoreSettings, MongodbStoreSettings, SqliteStoreSettings
from tailrace.config.subscriptions import beginning_of, beginnings, most_streams
from tailrace.destinations.jsonl import JsonlHandlerSettings
from tailrace.destinations.log import LogHandlerSettings
from tailrace.destinations.parquet import ParquetHandlerSettings
from tailrace.destinations.python import PythonHandlerSettings
from tailrace.event.codec import CODEC
from tailrace.model.start import NOW
from tailrace.snapshot.filter import text_of
from tailrace.stream import fingerprint
from tests.configuration import loads
from tests.unit.config.files import MINIMAL, minimal, parse


@pytest.mark.parametrize(
    "section", ["store", "checkpoint", "delivery", "catch_up", "supervisor", "http", "logging"]
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


def test_the_routes_of_a_handler_that_say_how_it_begins_may_say_the_same() -> None:
    """Also in other words, and beside one that leaves it to them, or is of another scope."""
    scopes = [{"name": name, "database": name} for name in ("orders", "users")]
    of = {"handlers": ["log"]}
    routes = [
        {"scope": "orders", **of, "snapshot": "initial", "start_at": "2024-05-01T00:00:00Z"},
        {"scope": "orders", **of, "snapshot": {"mode": "initial"}},
        {"scope": "orders", **of, "start_at": "2024-05-01T02:00:00+02:00"},
        {"scope": "orders", **of},
        {"scope": "users", **of, "snapshot": "never", "start_at": "now"},
    ]
    settings = parse(minimal(scopes=scopes, routes=routes))
    orders, users = (beginnings(settings, each)["log"] for each in settings.scopes)
    assert (orders.snapshot.mode, orders.snapshot_path) == ("initial", "routes[1].snapshot")
    assert (orders.start.at_operation_time, orders.start_path) == (
        Timestamp(1714521600, 0),
        "routes[2].start_at",
    )
    assert (users.snapshot.mode, users.start) == ("never", NOW)


def test_a_route_that_does_not_say_how_its_handlers_begin_leaves_it_to_the_scope() -> None:
    settings = parse(minimal(scope={"snapshot": "initial", "start_at": "1970-01-01T00:01:00Z"}))
    begins = beginnings(settings, settings.scopes[0])["log"]
    assert begins.same_as(beginning_of(settings.scopes[0]))
    assert (begins.start_path, begins.snapshot_path) == ("scopes[0].start_at", "scopes[0].snapshot")


@pytest.mark.parametrize(("streams", "most"), [(1, 5), (2, 6), (9, 6)])
def test_each_handler_but_one_of_a_scope_may_need_a_stream_of_its_own(
    streams: int, most: int
) -> None:
    names = ["a", "b", "c"]
    settings = parse(
        minimal(
            scopes=[{"name": name, "database": name} for name in ("many", "two", "one")],
            handlers={name: {"type": "log"} for name in names},
            routes=[
                {"scope": "many", "handlers": names},
                {"scope": "many", "handlers": names[:1]},
                {"scope": "two", "handlers": names[:2]},
                {"scope": "one", "handlers": names[:1]},
            ],
            catch_up={"streams": streams},
        )
    )
    assert most_streams(settings) == most
