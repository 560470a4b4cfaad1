"""Keys of the section ``pipeline`` that no other module is about: what each one does."""

import sys
from itertools import count
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline import class_archive, job, session, table_groups
from tailrace.pipeline.object_store import spark_settings
from tailrace.pipeline.segments import in_batches
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({}, "spark.master", "local[*]"),
        ({"master": "spark://host:7077"}, "spark.master", "spark://host:7077"),
        ({"driver_memory": "8g"}, "spark.driver.memory", "8g"),
        ({"spark": {"spark.ui.enabled": "true"}}, "spark.ui.enabled", "true"),
    ],
    ids=["without a master", "master", "driver_memory", "spark"],
)
def test_a_key_is_a_setting_of_spark(settings: dict[str, Any], key: str, value: str) -> None:
    given = PipelineSettings.model_validate(settings)
    assert session.spark_conf(given, s3=False, submitted=False)[key] == value


@pytest.mark.parametrize(
    ("environment", "options", "collectors"),
    [
        ("", "", ["-XX:+UseParallelGC"]),
        ("-XX:+UseSerialGC", "", []),
        ("", "-XX:+UseZGC -Dmine=1", ["-XX:+UseZGC"]),
    ],
)
def test_the_options_of_the_site_for_java_come_after_ours_and_choose_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, environment: str, options: str, collectors: list[str]
) -> None:
    """Java does not start with two."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", environment)
    given = PipelineSettings(spark={"spark.driver.extraJavaOptions": options})
    conf = session.spark_conf(given, s3=False, submitted=False)
    found = conf["spark.driver.extraJavaOptions"]
    assert [each for each in found.split() if "GC" in each] == collectors
    assert found.endswith(options)
    assert "-XX:-UsePerfData" in found


@pytest.mark.parametrize("written", [True, False])
def test_spark_starts_with_the_archive_of_its_classes_if_that_was_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: bool
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive = class_archive.path()
    if written:
        archive.parent.mkdir(parents=True)
        archive.touch()
    found = session.spark_conf(PipelineSettings(), s3=False, submitted=False)
    options = found["spark.driver.extraJavaOptions"].split()
    assert (f'"-XX:SharedArchiveFile={archive}"' in options) == written


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"AWS_ENDPOINT_URL": "http://store:9000"},
            {
                "endpoint": "http://store:9000",
                "endpoint.region": "us-east-1",
                "path.style.access": "true",
                "connection.ssl.enabled": "false",
            },
        ),
        (
            {
                "AWS_ENDPOINT_URL_S3": "https://store",
                "AWS_REGION": "eu-1",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
            },
            {"endpoint": "https://store", "endpoint.region": "eu-1", "path.style.access": "false"},
        ),
        (
            {"AWS_DEFAULT_REGION": "eu-2", "AWS_PROFILE": "shop"},
            {
                "endpoint": None,
                "endpoint.region": "eu-2",
                "aws.credentials.provider": "software.amazon.awssdk.auth.credentials."
                "ProfileCredentialsProvider",
            },
        ),
    ],
    ids=["a plain endpoint", "hosts as buckets", "AWS with a profile"],
)
def test_variables_of_aws_are_settings_of_spark(
    variables: dict[str, str], expected: dict[str, str | None]
) -> None:
    found = spark_settings(variables)
    assert {name: found.get(f"spark.hadoop.fs.s3a.{name}") for name in expected} == expected


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
    monkeypatch.setattr(table_groups, "TABLE_BYTES", 0)  # small ones share one job
    pipeline.run(parallel_collections=2, history=False)
    assert pipeline.current().keys() == {"k"}
    assert pipeline.current("shop.users").keys() == {"l"}
