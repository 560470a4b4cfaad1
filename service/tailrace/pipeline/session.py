"""The Spark session, and the Java that it needs."""

import os
import re
import shutil
import subprocess
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import PipelineRefused, describe

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 supports (https://spark.apache.org/docs/latest/)."""

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    # Delta readers know no other type: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    # The log is written to several directories at once, without a sort by directory.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Paths are always given one by one: a Spark job to list them would cost more.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Parquet has its own checksums: write no `.crc` file beside each local file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    # Segments have a checksum for each page: report damage as an error.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Small Arrow batches, to limit memory: a document may have 16 MB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOCAL_PARTITIONS = "16"
"""Partitions of a shuffle on one machine; Spark's default of 200 is for clusters."""


def open_session(settings: PipelineSettings) -> SparkSession:
    """The session; under ``spark-submit``, the one given. Raises :class:`PipelineRefused`."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    local = (settings.master or "local").startswith("local")
    own: dict[str, str] = {}
    builder = SparkSession.builder.appName("tailrace")
    if not submitted:
        _check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        own["spark.driver.memory"] = settings.driver_memory
        own["spark.driver.extraJavaOptions"] = "-XX:-UsePerfData"
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            own["spark.sql.shuffle.partitions"] = _LOCAL_PARTITIONS
    if settings.master or not submitted:
        builder = builder.master(settings.master or "local[*]")
    for key, value in {**_SETTINGS, **own, **settings.spark}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise PipelineRefused(f"Spark does not start: {describe(error)[:400]}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _check_java() -> None:
    """Raises :class:`PipelineRefused` unless the Java that Spark would start is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise PipelineRefused(
            f"the pipeline needs Java {OLDEST_JAVA} or newer, and {where}. On Debian: "
            "apt-get install openjdk-17-jre-headless"
        )
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark itself would start
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineRefused(f"{java}: does not run: {describe(error)}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = f"is Java {version[1]}" if version else "does not print its version"
        raise PipelineRefused(
            f"{java}: {found}; the pipeline needs {OLDEST_JAVA} or newer. Set JAVA_HOME to one"
        )
