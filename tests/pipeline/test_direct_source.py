"""``readStream.format("tailrace")`` in Spark, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.direct import TailraceSource
from tailrace.direct.rows import SCHEMA
from tests.daemon import until
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Batches = dict[int, list[Row]]
Handle = Callable[[DataFrame, int], None]


class Queries:
    """Queries of one checkpoint over one database; ``seen`` has every batch that was handled."""

    def __init__(self, spark: SparkSession, uri: str, database: str, checkpoint: Path) -> None:
        self.seen: Batches = {}
        self._spark = spark
        self._options = {"uri": uri, "database": database, "maxAwaitTimeMS": "200"}
        self._checkpoint = checkpoint

    def changes(self, **options: Any) -> DataFrame:
        reader = self._spark.readStream.format("tailrace")
        return reader.options(**{**self._options, **options}).load()

    def now(self, **options: Any) -> DataFrame:
        """The same as a batch read."""
        reader = self._spark.read.format("tailrace")
        return reader.options(**{**self._options, **options}).load()

    def start(self, handle: Handle | None = None, **options: Any) -> StreamingQuery:
        return self._writer(handle, options).trigger(processingTime="100 milliseconds").start()

    def run(self, handle: Handle | None = None, **options: Any) -> list[Row]:
        """Handles what is there; returns it. Raises what ended the query."""
        known = set(self.seen)
        query = self._writer(handle, options).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return [row for batch, rows in self.seen.items() if batch not in known for row in rows]

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.seen.values() for row in rows]

    def _writer(self, handle: Handle | None, options: dict[str, Any]) -> Any:
        return (
            self.changes(**options)
            .writeStream.foreachBatch(handle or self.handle)
            .option("checkpointLocation", str(self._checkpoint))
        )

    def handle(self, frame: DataFrame, batch: int) -> None:
        """A batch whose end Spark had no time to note comes again, and is the same then."""
        rows = frame.collect()
        assert self.seen.setdefault(batch, rows) == rows


class Crashing:
    """Handles a batch with rows halfway once: it fails behind its rows."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.before: Batches = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if rows and not self.before:
            self.before[batch] = rows
            raise RuntimeError("killed in the middle of a batch")
        self.queries.handle(frame, batch)


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(TailraceSource)


@pytest.fixture
def queries(spark: SparkSession, mongod: ReplicaSet, database: str, tmp_path: Path) -> Queries:
    return Queries(spark, mongod.uri, database, tmp_path / "checkpoint")


@pytest.fixture
def source(mongod: ReplicaSet, database: str) -> Iterator[Database[dict[str, Any]]]:
    with mongod.client() as client:
        yield client[database]


@pytest.fixture
def begun(queries: Queries) -> Queries:
    """A query that has found its place, and been stopped."""
    assert queries.run() == []
    return queries


def clock(source: Database[dict[str, Any]]) -> str:
    """The cluster's time, as ``startAt`` takes it; the test's database is empty before."""
    time: str = source.command("ping")["operationTime"].as_datetime().isoformat()
    return time


def keys(rows: list[Row]) -> list[Any]:
    return [json.loads(row.document_key)["_id"] for row in rows if row.document_key]


def numbers(*values: int) -> list[dict[str, str]]:
    return [{"$numberInt": str(value)} for value in values]


def test_rows_of_changes(begun: Queries, source: Database[dict[str, Any]], database: str) -> None:
    source.orders.insert_one({"_id": 1, "total": 1.5})
    source.orders.update_one({"_id": 1}, {"$set": {"total": 2.5}})
    source.orders.replace_one({"_id": 1}, {"total": 3.5})
    source.orders.delete_one({"_id": 1})
    rows = begun.run()
    assert [row.operation for row in rows] == ["insert", "update", "replace", "delete"]
    assert [row.ordinal for row in rows] == [0, 1, 2, 3]
    assert {(row.scope, row.table) for row in rows} == {("direct", f"{database}.orders")}
    assert {(row.database, row.collection) for row in rows} == {(database, "orders")}
    assert {row.document_key for row in rows} == {'{"_id":{"$numberInt":"1"}}'}
    assert [row.image for row in rows] == ["present", "absent", "present", None]
    assert [row.full_document for row in rows] == [
        '{"_id":{"$numberInt":"1"},"total":{"$numberDouble":"1.5"}}',
        None,
        '{"_id":{"$numberInt":"1"},"total":{"$numberDouble":"3.5"}}',
        None,
    ]
    described = json.loads(rows[1].update_description)
    assert described["updatedFields"] == {"total": {"$numberDouble": "2.5"}}
    assert sorted({row.position for row in rows}) == [row.position for row in rows]
    assert all(row.cluster_time and row.wall_time and row.token for row in rows)
    assert [row.cluster_seconds for row in rows] == [
        int(row.cluster_time.timestamp()) for row in rows
    ]


def test_options_reach_the_server(begun: Queries, source: Database[dict[str, Any]]) -> None:
    options = {
        "collection": "orders",
        "pipeline": '[{"$match": {"operationType": "update"}}]',
        "fullDocument": "updateLookup",
        "startAt": clock(source),
        "name": "mine",
    }
    source.orders.insert_one({"_id": 1})
    source.orders.update_one({"_id": 1}, {"$set": {"a": 1}})
    source.other.insert_one({"_id": 2})
    (row,) = begun.now(**options).collect()
    assert (row.scope, row.operation, row.image) == ("mine", "update", "present")
    assert json.loads(row.full_document)["a"] == {"$numberInt": "1"}


def test_a_stopped_query_goes_on_from_its_checkpoint(
    queries: Queries, source: Database[dict[str, Any]]
) -> None:
    """One that runs on its own, not until now."""
    query = queries.start()
    try:
        until(lambda: queries.seen, "the first place")
        source.orders.insert_one({"_id": 0})
        until(lambda: queries.rows, "the first row")
    finally:
        query.stop()
    source.orders.insert_one({"_id": 1})
    query = queries.start()
    try:
        until(lambda: len(queries.rows) == 2, "the row between")
        source.orders.insert_one({"_id": 2})
        until(lambda: len(queries.rows) == 3, "the last row")
    finally:
        query.stop()
    assert keys(queries.rows) == numbers(0, 1, 2)
    assert [row.ordinal for row in queries.rows] == [0, 1, 2]


def test_a_crash_in_a_batch_repeats_the_very_same_rows(
    begun: Queries, source: Database[dict[str, Any]]
) -> None:
    source.orders.insert_many([{"_id": key} for key in range(5)])
    crashing = Crashing(begun)
    with pytest.raises(PySparkException, match="killed in the middle"):
        begun.run(crashing, maxEventsPerTrigger=3)
    source.orders.insert_many([{"_id": key} for key in range(5, 7)])
    begun.run(crashing, maxEventsPerTrigger=5)  # the limit of before counts for that batch
    ((batch, before),) = crashing.before.items()
    assert begun.seen[batch] == before
    assert keys(before) == numbers(0, 1, 2)
    assert keys(begun.rows) == numbers(*range(7))


@pytest.mark.parametrize("begins", ["time", "now"])
def test_a_crash_in_the_first_batch(
    queries: Queries, source: Database[dict[str, Any]], begins: str
) -> None:
    """Spark stores the end of a batch, and nothing of where the first began."""
    start = {"startAt": clock(source)} if begins == "time" else {}
    failures = []

    def fail(frame: DataFrame, batch: int) -> None:
        failures.append((batch, frame.collect()))
        raise RuntimeError("killed in the first batch")

    source.orders.insert_one({"_id": 0})
    with pytest.raises(PySparkException, match="killed in the first batch"):
        queries.run(fail, **start)
    source.orders.insert_one({"_id": 1})
    queries.run(**start)
    assert failures == [(0, queries.seen[0])]
    assert keys(queries.rows) == (numbers(0, 1) if begins == "time" else numbers(1))


def test_triggers_take_their_share(begun: Queries, source: Database[dict[str, Any]]) -> None:
    source.orders.insert_many([{"_id": key} for key in range(5)])
    rows = begun.run(maxEventsPerTrigger=2)
    assert keys(rows) == numbers(*range(5))
    assert [len(batch) for batch in begun.seen.values() if batch] == [2, 2, 1]


def test_an_invalidate_is_the_last_row_and_the_query_goes_on(
    queries: Queries, source: Database[dict[str, Any]]
) -> None:
    queries.run(collection="orders")
    source.orders.insert_one({"_id": 0})
    source.orders.drop()
    assert [row.operation for row in queries.run(collection="orders")] == [
        "insert",
        "drop",
        "invalidate",
    ]
    source.orders.insert_one({"_id": 1})
    assert queries.run(collection="orders", onInvalidate="stop") == []
    assert keys(queries.run(collection="orders")) == numbers(1)


def test_a_batch_read_ends_now(queries: Queries, source: Database[dict[str, Any]]) -> None:
    start = clock(source)
    source.orders.insert_many([{"_id": key} for key in range(5)])
    frame = queries.now(startAt=start, maxEventsPerTrigger=2)
    assert frame.columns == SCHEMA.names
    assert keys(frame.collect()) == numbers(*range(5))
    (third,) = frame.where("ordinal = 2").collect()
    behind = queries.now(startAt=third.token)
    assert keys(behind.collect()) == numbers(3, 4)
    assert behind.where("operation = 'delete'").count() == 0


def test_what_cannot_be_is_told_at_load(queries: Queries) -> None:
    with pytest.raises(PySparkException, match="fullDocument'"):
        queries.changes(fullDocumnt="updateLookup")
    with pytest.raises(PySparkException, match="startAt: must be now, or an ISO 8601 time"):
        queries.now(startAt="yesterday")
    with pytest.raises(PySparkException, match="startAt: a batch read ends now"):
        queries.now().collect()
    with pytest.raises(PySparkException, match="schema: the columns are fixed"):
        queries._spark.read.format("tailrace").schema("a INT").option("uri", "x").load().collect()


def test_an_unreachable_server_is_named(queries: Queries) -> None:
    dead = {"uri": "mongodb://127.0.0.1:1/", "connectTimeoutSeconds": "0.2"}
    said = r"StartRefused: scope 'direct' \(.*127\.0\.0\.1:1 cannot be reached"
    with pytest.raises(PySparkException, match=said) as raised:
        queries.run(**dead)
    assert "direct cause" not in str(raised.value), "one error, not all that led to it"
    with pytest.raises(PySparkException, match=said):
        queries.now(**dead, startAt="2024-05-01T00:00:00Z").collect()


def test_a_changed_pipeline_is_refused(begun: Queries) -> None:
    with pytest.raises(PySparkException, match="its pipeline or options changed"):
        begun.run(pipeline='[{"$match": {}}]')
