"""delta-spark reads and streams the tables of the pipeline, in a session that has its jars.

``tests/spark/test_versions.py`` runs this file.
"""

import json
import re
from pathlib import Path

from pyspark.sql import SparkSession, functions

from tailrace.pipeline.maintenance import compact
from tailrace.spark import register
from tests.checkout import ROOT
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline


def test_current_and_history_are_read_also_as_of_a_version(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    """The rows are those that polars reads."""
    s = Stream()
    pipeline.land([s.insert("k", n=1), s.insert("l", n="x"), s.insert("m", "a b")])
    pipeline.run(columns={"shop.orders": {"n": "long"}})
    pipeline.land([s.update("k", n=2), s.delete("l"), s.rename("a b", "c")])
    pipeline.run()
    for table in ("current/shop.orders", "history/shop.orders", "current/shop.c", "quality"):
        frame = spark.read.format("delta").load(str(pipeline.tables / table))
        expected = pipeline.table(table)
        assert sorted(frame.toArrow().to_pylist(), key=str) == sorted(expected, key=str)
        assert expected
    before = spark.read.format("delta").option("versionAsOf", 0)
    current = before.load(str(pipeline.tables / "current" / "shop.orders"))
    assert [tuple(row) for row in current.select("key", "n", "_rescued").sort("key").collect()] == [
        ('"k"', 1, None),
        ('"l"', None, r'{"n":"\"x\""}'),
    ]


def test_the_log_is_streamed_once_also_after_a_compaction(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    """Conditions find what is there, by the files' bounds."""
    log, streamed = pipeline.tables / "changes", tmp_path / "streamed"

    def stream() -> list[int]:
        query = (
            spark.readStream.format("delta")
            .load(str(log))
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(streamed), "parquet", "append")
        )
        query.awaitTermination()
        return sorted(row.ordinal for row in spark.read.parquet(str(streamed)).collect())

    s = Stream()
    for at in range(2):
        pipeline.land([s.insert(f"k{at}", n=at), s.insert(f"l{at}", n="x" * 9000)])
        pipeline.run()
    assert stream() == [0, 1, 2, 3]
    assert compact(pipeline.job().log.load(), many=2) == 2
    pipeline.land([s.delete("k0")])
    pipeline.run()
    assert stream() == [0, 1, 2, 3, 4]
    changes = spark.read.format("delta").load(str(log))
    for condition, count in {
        "segment = 1": 2,
        "key = '\"k1\"'": 1,
        "full_document IS NULL": 1,
        "full_document > '{'": 4,
        "cluster_time IS NOT NULL": 5,
        "extra IS NULL": 5,
    }.items():
        assert changes.where(condition).count() == count, condition


def test_the_statement_for_tables_of_spark_merges_each_change_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What docs/spark.md shows, with a batch that comes again."""
    (statement,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(), re.S)
    register(spark)
    landing, s = Landing(tmp_path / "lake"), Stream()
    columns = "key STRING, document STRING, cluster_time TIMESTAMP"
    spark.sql(f"CREATE TABLE orders ({columns}) USING delta LOCATION '{tmp_path}/orders'")
    landing.land([s.insert(1, n=1), s.insert(2, n=1), s.insert(3, "older", n=0)])
    landing.land([s.update(1, n=2), s.delete(2), s.insert(4)])

    def merge() -> None:
        reader = spark.read.format("tailrace").option("lake", str(landing.path))
        batch = reader.options(view="changes", collections="shop.orders").load()
        row = functions.struct("operation", "document", "cluster_time")
        last = batch.groupBy("key").agg(functions.max_by(row, "sequence").alias("last"))
        last.select("key", "last.*").createOrReplaceTempView("last")
        spark.sql(statement)

    merge()
    merge()
    assert spark.table("orders").count() == 2
    landing.land([s.rename("older", "orders"), s.insert(5, n=5)])
    merge()
    rows = spark.table("orders").collect()
    spark.sql("DROP TABLE orders")
    assert sorted((row.key, json.loads(row.document)) for row in rows) == [
        ('{"$numberInt":"3"}', {"_id": 3, "n": 0}),
        ('{"$numberInt":"5"}', {"_id": 5, "n": 5}),
    ]
