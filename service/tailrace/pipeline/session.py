"""The Spark session."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline import class_archive, jars, spark_process
from tailrace.pipeline.location import Location
from tailrace.pipeline.object_store import spark_settings
from tailrace.pipeline.prerequisites import require_java

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
    # Bounds of long texts are cut, as Delta's own writer does. Otherwise they would be left out.
    "spark.hadoop.parquet.statistics.truncate.length": "32",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Segments have a checksum for each page: report damage as an error.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Small Arrow batches, to limit memory: a document may have 16 MB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    # Rows of small tables come to the driver: what is more stays in Spark.
    "spark.driver.maxResultSize": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_WITHOUT_CHECKSUMS = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}
"""Writes no `.crc` file beside each local file: Parquet has its own checksums. Hadoop's S3 client
needs the default, because it keeps in local files what it has not sent yet."""

_COMMITTER = "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"
"""With 2, a task renames its files itself. If it is lost meanwhile, some would stay beside those of
its next attempt. On one machine there is no next attempt; on a cluster the driver renames the files
of each finished task (1)."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_S3_CLIENT = "org.apache.hadoop.fs.s3a.S3AFileSystem"

_LOCAL_PARTITIONS = "16"
"""Partitions of a shuffle on one machine; Spark's default of 200 is for clusters."""


def open_session(settings: PipelineSettings, locations: Sequence[Location] = ()) -> SparkSession:
    """The session; under ``spark-submit``, the one given. ``locations``: the lake and the tables.

    Raises :class:`PipelineRefused`.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    s3 = any(location.is_s3 for location in locations)
    if not submitted:
        require_java()
    chosen = spark_conf(settings, s3=s3, submitted=submitted)
    try:
        if not submitted:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            if _is_local(settings):
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            spark_process.start(chosen)
        builder = SparkSession.builder
        for key, value in chosen.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise PipelineRefused(f"Spark does not start: {describe(error)[:400]}") from error
    session.sparkContext.setLogLevel("ERROR")
    if s3 and submitted:
        _require_s3(session)
    return session


def spark_conf(settings: PipelineSettings, *, s3: bool, submitted: bool) -> dict[str, str]:
    """Spark's settings: ours, then those of the configuration.

    Raises :class:`PipelineRefused` if Spark needs jars that are not there.
    """
    local = not submitted and _is_local(settings)
    own = {"spark.app.name": "tailrace", _COMMITTER: "2" if local else "1"}
    own |= spark_settings(os.environ) if s3 else _WITHOUT_CHECKSUMS
    if not submitted:
        if s3 and not _has_s3(settings):
            own["spark.jars"] = ",".join(map(str, jars.s3_jars()))
        own["spark.driver.memory"] = settings.driver_memory
        if local:
            own["spark.sql.shuffle.partitions"] = _LOCAL_PARTITIONS
    if settings.master or not submitted:
        own["spark.master"] = settings.master or "local[*]"
    conf = {**_SETTINGS, **own, **settings.spark}
    if not submitted:
        conf[_JAVA_OPTIONS] = _java_options(settings.spark.get(_JAVA_OPTIONS, ""))
    return conf


def _java_options(given: str) -> str:
    """Ours, then those of the configuration, of which each may undo one of ours."""
    options = ["-XX:-UsePerfData", *class_archive.options()]
    environment = (os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    if not any("GC" in each for each in (given, *environment)):  # Java refuses two collectors
        # It takes less CPU than the default one, which keeps pauses short: 5 to 10 % of a cold
        # start.
        options.append("-XX:+UseParallelGC")
    return " ".join([*options, given]).rstrip()


def _is_local(settings: PipelineSettings) -> bool:
    return (settings.master or "local").startswith("local")


def _has_s3(settings: PipelineSettings) -> bool:
    """Whether Spark has hadoop-aws without us: beside its own jars, or by the site's settings."""
    home = Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0])
    named = "hadoop-aws" in " ".join(settings.spark.values())
    return named or any((home / "jars").glob("hadoop-aws-*.jar"))


def _require_s3(session: SparkSession) -> None:
    """Raises :class:`PipelineRefused` if ``spark-submit`` has not given the jars for S3."""
    jvm: Any = session.sparkContext._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(_S3_CLIENT)
    except Py4JJavaError as error:
        session.stop()
        raise PipelineRefused(
            "Spark has no jars for s3://: fetch them with 'tailrace pipeline --fetch-jars', then "
            f"give spark-submit the option --jars {jars.directory()}/*.jar, divided by commas"
        ) from error
