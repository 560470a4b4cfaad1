"""The archive of the classes of Spark, which ``make test`` writes before the tests."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import PipelineRefused
from tailrace.pipeline import class_archive
from tailrace.pipeline.training_run import archive_classes
from tests.pipeline.cpu import processes


def test_spark_loads_its_classes_from_the_archive(spark: SparkSession) -> None:
    archive = class_archive.path()
    if not archive.is_file():
        pytest.skip("there is no archive: run 'tailrace pipeline --archive-classes'")
    maps = Path(f"/proc/{processes(spark)['java']}/maps").read_text()
    assert str(archive) in maps


def test_an_archive_that_cannot_be_written_is_refused_before_spark_starts() -> None:
    with pytest.raises(PipelineRefused, match=r"^/proc/share/spark\.jsa: cannot be written: "):
        archive_classes(Path("/proc/share/spark.jsa"), lambda lake: None, {})
