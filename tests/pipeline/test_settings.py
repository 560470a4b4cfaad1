"""Keys of the section ``pipeline`` that no other module is about: what each one does."""

from itertools import count
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline import job, session
from tailrace.pipeline.segments import in_batches
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


class Builder:
    """Records what Spark would be started with."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def appName(self, name: str) -> "Builder":  # noqa: N802 - as Spark calls it
        return self

    def master(self, master: str) -> "Builder":
        return self.config("master", master)

    def config(self, key: str, value: str) -> "Builder":
        self.given[key] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802 - as Spark calls it
        return SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=str))


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({}, "master", "local[*]"),
        ({"master": "spark://host:7077"}, "master", "spark://host:7077"),
        ({"driver_memory": "8g"}, "spark.driver.memory", "8g"),
        ({"spark": {"spark.ui.enabled": "true"}}, "spark.ui.enabled", "true"),
    ],
    ids=["without a master", "master", "driver_memory", "spark"],
)
def test_a_key_is_a_setting_of_spark(
    settings: dict[str, Any], key: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder()
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkSession, "builder", builder)
    monkeypatch.setattr(session, "_check_java", lambda: None)
    session.open_session(PipelineSettings.model_validate(settings))
    assert builder.given[key] == value


def test_a_batch_ends_with_the_segment_that_reaches_batch_events() -> None:
    segments: list[Any] = [SimpleNamespace(footer=SimpleNamespace(rows=4)) for _ in range(5)]
    assert [len(batch) for batch in in_batches(segments, 7)] == [2, 2, 1]


def test_parallel_collections_are_published_at_the_same_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each publication waits for the other: one at a time would not end."""
    stream, both, number = Stream(), Barrier(2, timeout=120), count()
    pipeline.land([stream.insert("k"), stream.insert("l", "users")])
    publish = job.publish

    def publish_with_another(*arguments: Any) -> Any:
        if next(number) < 2:
            both.wait()
        return publish(*arguments)

    monkeypatch.setattr(job, "publish", publish_with_another)
    pipeline.run(parallel_collections=2, history=False)
    assert pipeline.current().keys() == {"k"}
    assert pipeline.current("shop.users").keys() == {"l"}
