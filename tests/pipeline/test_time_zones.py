"""Tables and rows do not depend on where a machine is, and hold every time that BSON has."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson import DatetimeMS
from polars import selectors
from pyspark.sql import DataFrame, SparkSession

from tailrace.pipeline import log_files, views
from tailrace.spark import register
from tests.pipeline.columns import ABSENT, fitting
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline

ZONES = ("UTC", "Pacific/Kiritimati", "America/St_Johns")
"""14 hours before UTC, and three and a half behind it; before 1900 both are odd by seconds."""

TIMES = [
    *(-(2**63), -62_135_596_800_001, -62_135_596_800_000),  # about the first year
    *(-12_219_292_800_001, -12_219_292_800_000, -12_219_000_000_000),  # the days left out in 1582
    *(-2_208_988_800_001, -1, 0, 1),
    *(788_875_200_000, 1_320_552_060_000),  # a day and an hour that these zones lack, or have twice
    *(253_402_300_799_999, 253_402_300_800_000, 2**63 - 1),  # about the year 9999
]
"""Milliseconds since 1970."""

LAST_SECOND = 2**32 - 20
"""The last cluster times are in 2106."""


@contextmanager
def machine_in(zone: str, spark: SparkSession) -> Iterator[None]:
    """This process, Java, its Python workers and the session's SQL are in a zone."""
    jvm: Any = spark._jvm
    workers, java = spark.sparkContext.environment, jvm.java.util.TimeZone
    sql, default, own = spark.conf.get("spark.sql.session.timeZone"), java.getDefault(), "TZ"
    before = os.environ.get(own)
    spark.conf.set("spark.sql.session.timeZone", zone)
    java.setDefault(java.getTimeZone(zone))
    os.environ[own] = workers[own] = zone
    time.tzset()
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", sql)
        java.setDefault(default)
        del os.environ[own], workers[own]
        if before is not None:
            os.environ[own] = before
        time.tzset()


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Landing:
    """A lake of two segments."""
    landing, s = Landing(tmp_path_factory.mktemp("lake")), Stream(seconds=LAST_SECOND)
    for times in (TIMES[::2], TIMES[1::2]):
        landing.land(
            [
                s.insert(DatetimeMS(at), at=DatetimeMS(at), text=str(at))
                | {"wallTime": DatetimeMS(at)}
                for at in times
            ]
        )
    return landing


def since_1970(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows, with times as microseconds."""
    shown = [
        f"unix_micros({name}) AS {name}" if kind == "timestamp" else name
        for name, kind in rows.dtypes
        if kind != "variant"
    ]
    return [row.asDict() for row in rows.selectExpr(*shown).collect()]


def stored(pipeline: Pipeline, name: str) -> list[dict[str, Any]]:
    """As polars reads a table, with times as microseconds."""
    rows = pipeline.frame(name).sort("ordinal")
    return rows.with_columns(selectors.datetime().dt.epoch("us")).to_dicts()


def microseconds(at: int) -> int | None:
    """``None`` outside the years 1 to 9999."""
    return None if fitting(DatetimeMS(at), "timestamp") is ABSENT else at * 1000


def number(row: dict[str, Any], column: str) -> int:
    """The time at which a document was made, as its text says."""
    return int(json.loads(row[column])["text"])


def test_tables_are_the_same_in_every_zone(
    landing: Landing,
    spark: SparkSession,
    tmp_path: Path,
    catalog: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In both formats, of batches that this process decodes, and of those that Spark decodes."""
    found: list[Sequence[Any]] = []
    here, workers = ({**catalog, "name": name} for name in ("here", "workers"))
    formats = ((None, log_files.ROWS), (None, 0), (here, log_files.ROWS), (workers, 0))
    for zone, (settings, rows) in zip((*ZONES, ZONES[1]), formats, strict=True):
        pipeline = Pipeline(spark, tmp_path / f"{zone}-{len(found)}", catalog=settings)
        pipeline.lake = landing.path
        monkeypatch.setattr(log_files, "ROWS", rows)
        with machine_in(zone, spark):
            pipeline.run(columns={"shop.orders": {"at": "timestamp"}}, batch_events=len(TIMES))
            view = views.history(spark, pipeline.store, "shop.orders").orderBy("ordinal")
            found.append(
                [
                    *(stored(pipeline, name) for name in ("changes", "current/shop.orders")),
                    stored(pipeline, "history/shop.orders"),
                    since_1970(view),
                ]
            )
    for other in found[1:]:
        assert other == found[0]
    log, *tables, view = found[0]
    for row in log:
        assert row["cluster_time"] == row["cluster_seconds"] * 1_000_000 >= LAST_SECOND * 1_000_000
        assert row["wall_time"] == microseconds(number(row, "full_document"))
    for rows in tables:
        assert len(rows) == len(TIMES)
        for row in rows:
            at = number(row, "document")
            assert row["at"] == microseconds(at)
            date = json.dumps({"$date": {"$numberLong": str(at)}}, separators=(",", ":"))
            rescued = json.loads(row["_rescued"] or "{}")
            assert rescued == ({} if row["at"] is not None else {"at": date})
            assert row["key"] == date
    assert [row["at"] for row in view] == [row["at"] for row in tables[1]]


@pytest.mark.parametrize("view", ["events", "changes"])
def test_the_data_source_has_the_same_rows_in_every_zone(
    view: str, landing: Landing, spark: SparkSession
) -> None:
    found = []
    for zone in ZONES:
        with machine_in(zone, spark):
            register(spark)
            reader = spark.read.format("tailrace").option("lake", str(landing.path))
            found.append(since_1970(reader.option("view", view).load()))
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert len(found[0]) == len(TIMES)
    for row in found[0]:
        at = number(row, "document")
        assert row["cluster_time"] >= LAST_SECOND * 1_000_000
        assert row["key"] == f'{{"$date":{{"$numberLong":"{at}"}}}}'
        if view == "events":
            assert row["wall_time"] == microseconds(at)
