"""One Spark session for all tests of tables, and lakes for it."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline.session import open_session
from tests.pipeline.pipeline import Pipeline

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}
"""Settings for runs of seconds."""


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    session = open_session(PipelineSettings(master="local[2]", spark=SETTINGS))
    yield session
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # ends Java
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
    gc.collect()  # py4j logs when its connections are deleted; later, pytest has closed the log


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """A lake and its tables, both empty."""
    return Pipeline(spark, tmp_path)
