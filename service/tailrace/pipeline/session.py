"""The Spark session, and what has to be there before one can start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from tailrace.errors import PipelineRefused, describe

OLDEST_JAVA = 17
"""What Spark 4 runs on (https://spark.apache.org/docs/latest/)."""

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    # Readers of Delta tables know no other: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    # The log is written to several directories at once without sorting it by them.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Paths are always given one by one: a job to list them costs more than asking.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Parquet has checksums of its own: no `.crc` file beside each local one.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    # Segments have a checksum for each page: damage is an error.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Batches of Arrow are bounded by bytes: documents may have 16 MB each.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


_LOCAL_PARTITIONS = "16"
"""Parts of a shuffle on one machine; Spark's 200 are for clusters."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How Spark is started.

    ``jvm_archive`` is a file for Java's class data sharing: made by the first process that ends,
    used by all later ones, which start in a third of the time. ``quick_start`` saves the work of
    Java's second compiler, which pays only for runs of minutes.
    """

    master: str | None = None
    memory: str = "2g"
    jvm_archive: Path | None = None
    quick_start: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def open_session(settings: SessionSettings) -> SparkSession:
    """A session; under ``spark-submit`` the one that it prepared.

    Raises :class:`PipelineRefused` where there is no Java that Spark runs on, or no cluster.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        _check_java(_java())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if (settings.master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("tailrace")
    if settings.master or not submitted:
        builder = builder.master(settings.master or "local[*]")
    if (settings.master or "local").startswith("local") and not submitted:
        builder = builder.config("spark.sql.shuffle.partitions", _LOCAL_PARTITIONS)
    for key, value in {**_SETTINGS, **settings.settings}.items():
        builder = builder.config(key, value)
    if not submitted:
        builder = builder.config("spark.driver.memory", settings.memory)
        builder = builder.config("spark.driver.extraJavaOptions", _java_options(settings))
    try:
        session = builder.getOrCreate()
    except (PySparkException, PySparkRuntimeError, OSError) as error:
        raise PipelineRefused(f"Spark does not start: {describe(error)[:400]}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def close_session(session: SparkSession) -> None:
    """Stops Spark, and waits for Java where it has an archive of its classes to write."""
    context = session.sparkContext
    options = context.getConf().get("spark.driver.extraJavaOptions") or ""
    gateway = SparkContext._gateway
    session.stop()
    process = getattr(gateway, "proc", None)
    if "ArchiveClassesAtExit" in options and process is not None:
        process.stdin.close()  # what tells the JVM that its Python has gone
        process.wait()


def _java_options(settings: SessionSettings) -> str:
    options = ["-XX:-UsePerfData"]
    if settings.quick_start:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    archive = settings.jvm_archive
    if archive is not None:
        known = archive.exists()
        options += ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=off:stderr"]
        options.append(f"-XX:{'SharedArchiveFile' if known else 'ArchiveClassesAtExit'}={archive}")
    return " ".join(options)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise PipelineRefused(
            f"the pipeline needs Java {OLDEST_JAVA} or newer, and {where}. On Debian: "
            "apt-get install openjdk-17-jre-headless"
        )
    return found


def _check_java(java: str) -> None:
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark itself would start
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineRefused(f"{java}: does not run: {describe(error)}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None:
        raise PipelineRefused(f"{java}: does not tell its version; Java {OLDEST_JAVA} is needed")
    if int(version[1]) < OLDEST_JAVA:
        raise PipelineRefused(
            f"{java}: is Java {version[1]}; the pipeline needs {OLDEST_JAVA} or newer. Set "
            "JAVA_HOME to one"
        )
