"""When tables are published, and what a batch costs that is not."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.pipeline import views
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


def live(pipeline: Pipeline, spark: SparkSession) -> set[str]:
    """What the view has."""
    rows = views.current(spark, str(pipeline.tables), "shop.orders").select("key").collect()
    return {row.key.strip('"') for row in rows}


def test_a_run_may_end_without_publishing(pipeline: Pipeline, spark: SparkSession) -> None:
    """Runs publish once enough has come together, over all of them; a drop is published at once,
    and a run that publishes at its end brings the rest."""
    settings = {"publish_at_end": False, "publish_ratio": 0.5, "publish_seconds": 3600.0}
    s = Stream()
    pipeline.land([s.insert(f"k{at}", n=at) for at in range(8)])
    assert pipeline.run(**settings).published == 2  # there was nothing before
    for name in ("a", "b", "c", "d"):
        pipeline.land([s.insert(name, n=1)])
        assert pipeline.run(**settings).published == 0
    assert set(pipeline.current()) == {f"k{at}" for at in range(8)}
    assert live(pipeline, spark) == {*"abcd", *(f"k{at}" for at in range(8))}
    pipeline.land([s.insert("e", n=1)])
    assert pipeline.run(**settings).published == 2
    assert set(pipeline.current()) == live(pipeline, spark)
    pipeline.land([s.insert("f", n=1), s.drop("other")])
    pipeline.run(**settings)
    assert "f" in pipeline.current()
    pipeline.land([s.insert("g", n=1)])
    pipeline.run(**settings)
    assert "g" not in pipeline.current()
    assert pipeline.run().published == 2
    assert "g" in pipeline.current()
    assert len(pipeline.history()) == 15


def test_a_run_of_every_batch_publishes_what_a_run_before_left(pipeline: Pipeline) -> None:
    s = Stream()
    pipeline.land([s.insert(f"k{at}", n=at) for at in range(8)])
    pipeline.run()
    pipeline.land([s.insert("a", n=1)])
    pipeline.run(publish_at_end=False, publish_ratio=0.5, publish_seconds=3600.0)
    assert "a" not in pipeline.current()
    pipeline.run(publish_at_end=False)
    assert "a" in pipeline.current()


def test_a_batch_that_is_not_published_reads_nothing_of_the_tables(
    pipeline: Pipeline,
) -> None:
    """So it costs the same at any size of them: here their files are away."""
    s = Stream()
    pipeline.land([s.insert(f"k{at}", n=at) for at in range(50)])
    pipeline.run()
    tables = [pipeline.tables / kind / "shop.orders" for kind in ("current", "history")]
    job = pipeline.job(publish_ratio=0.5, publish_seconds=3600.0)
    job.catch_up()
    job.count()
    files = [file for table in tables for file in table.rglob("*.parquet")]
    assert len(files) >= 2
    for file in files:
        file.rename(file.with_suffix(".away"))
    pipeline.land([s.update("k1", n=-1), s.delete("k2")])
    assert job.step()
    assert (job.progress.events, job.progress.published) == (2, 0)
    for file in files:
        file.with_suffix(".away").rename(file)
    job.finish()
    assert pipeline.current()["k1"] == {"n": -1}
    assert "k2" not in pipeline.current()
    counted = [row["events"] for row in pipeline.table("quality") if row["stage"] == "current"]
    assert sorted(counted) == [2, 50]
