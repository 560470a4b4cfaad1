"""``spark.read.format("tailrace")`` in Spark itself; tests/unit/spark tests what it reads."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from tailrace.spark import register
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def test_spark_reads_a_lake_once_and_as_a_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, s = Landing(tmp_path / "lake"), Stream()
    for each in range(3):
        landing.land([s.insert(each), s.drop()])
    reader = spark.read.format("tailrace").option("lake", str(landing.path))
    found = reader.option("collections", "shop.orders").load().orderBy("ordinal").collect()
    assert [(row.operation, row.key) for row in found][:2] == [
        ("insert", '{"$numberInt":"0"}'),
        ("drop", None),
    ]
    assert found[0].document == '{"_id":0}'
    variants = reader.option("documents", "variant").load().where("operation = 'insert'")
    ids = variants.selectExpr("variant_get(document, '$._id', 'int') AS id").orderBy("id")
    assert [row.id for row in ids.collect()] == [0, 1, 2]
    with pytest.raises(PySparkException, match="unknown option 'scop' of the format tailrace"):
        reader.option("scop", "orders").load()

    batches: list[list[Row]] = []

    def note(batch: DataFrame, number: int) -> None:
        batches.append(batch.orderBy("ordinal").collect())

    def run() -> None:
        stream = spark.readStream.format("tailrace").option("lake", str(landing.path))
        writer = stream.option("max_segments", 2).load().writeStream.foreachBatch(note)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    assert [[row.ordinal for row in batch] for batch in batches] == [[0, 1, 2, 3], [4, 5]]
    assert [row for batch in batches for row in batch] == found
    landing.land([s.insert(3)])
    run()
    assert [row.key for row in batches[2]] == ['{"$numberInt":"3"}']
    with monkeypatch.context() as newer:
        newer.setattr("tailrace.lake.segment.FORMAT", 2)
        landing.land([s.insert(4)])
    with pytest.raises(PySparkException, match=r"seg-0+4\.parquet: .*: format 2 is not 1"):
        run()
    assert len(batches) == 3
