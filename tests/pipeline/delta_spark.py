"""delta-spark reads and streams the tables of the pipeline, in a session that has its jars.

``tests/spark/test_versions.py`` runs this file.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.pipeline.maintenance import compact
from tests.pipeline.events import Stream
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
