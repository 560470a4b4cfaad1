"""One Spark session for all tests of tables, and lakes to read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.pipeline.session import SessionSettings, open_session
from tests.pipeline.pipeline import Pipeline

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

ARCHIVE = Path(sys.prefix) / "tailrace-tests.jsa"

_MAKE = """
import sys
from pathlib import Path
from tailrace.pipeline.session import SessionSettings, close_session, open_session
session = open_session(SessionSettings("local[2]", jvm_archive=Path(sys.argv[1]), quick_start=True))
rows = session.range(10).selectExpr("id", "max(id) OVER (PARTITION BY id % 2 ORDER BY id) AS high")
rows.mapInArrow(lambda batches: batches, rows.schema).write.mode("overwrite").parquet(sys.argv[2])
session.read.parquet(sys.argv[2]).groupBy("high").count().collect()
close_session(session)
"""


@pytest.fixture(scope="session")
def jvm_archive(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Java's classes as it wants them in memory: made once for an environment, saves half of
    each start."""
    if not ARCHIVE.exists():
        made = ARCHIVE.with_suffix(f".{os.getpid()}")
        rows = tmp_path_factory.mktemp("archive") / "rows"
        command = [sys.executable, "-c", _MAKE, str(made), str(rows)]
        subprocess.run(command, check=True, capture_output=True)
        made.replace(ARCHIVE)
    return ARCHIVE


@pytest.fixture(scope="session")
def spark(jvm_archive: Path) -> Iterator[SparkSession]:
    session = open_session(
        SessionSettings("local[2]", jvm_archive=jvm_archive, quick_start=True, settings=SETTINGS)
    )
    yield session
    session.stop()


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """A lake and its tables, both empty."""
    return Pipeline(spark, tmp_path)
