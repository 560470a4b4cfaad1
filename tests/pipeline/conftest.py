"""One Spark session for all tests of tables, and lakes for it."""

import gc
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import PipelineRefused
from tailrace.pipeline import jars
from tailrace.pipeline.object_store import spark_settings
from tailrace.pipeline.session import open_session
from tests.machine import exclusive
from tests.pipeline import early_connection, worker_daemon
from tests.pipeline.pipeline import Pipeline
from tests.s3 import CREDENTIALS, S3
from tests.s3_proxy import Rules, S3Proxy
from tests.scratch import MakeDirectory

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.maxResultSize": "16m",
    # To compile an expression costs more than to interpret it for the rows of a test.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # For the code of its first compiler alone Java has 48 MB, which the tests fill: it would throw
    # some away and compile that again.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
}
"""Settings for runs of seconds."""

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings of a site that has delta-spark (``tests/spark``)."""

IN_SHARED_SESSION = {
    # Java's environment has no credentials, and the session writes local tables, too.
    "access.key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
    "secret.key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    "fast.upload.buffer": "array",
    "multipart.size": "5M",
    "attempts.maximum": "2",
    "retry.limit": "2",
    "retry.interval": "50ms",
    "retry.throttle.interval": "10ms",
}
"""Settings of S3 for the session of the tests, below ``fs.s3a``."""


@pytest.fixture(scope="session")
def s3_jars() -> str:
    """The jars with which Spark reaches S3; Maven fetches them once per user."""
    with exclusive():
        try:
            found = jars.s3_jars()
        except PipelineRefused:
            found = jars.fetch(jars.directory(), jars.pinned())
    return ",".join(map(str, found))


@pytest.fixture(scope="session")
def spark(java: None, s3_jars: str, session_directory: MakeDirectory) -> Iterator[SparkSession]:
    settings = {**SETTINGS, **worker_daemon.SETTING, "spark.jars": s3_jars}
    if delta := os.environ.get("TAILRACE_TESTS_JARS"):
        settings |= {**DELTA, "spark.jars": f"{s3_jars},{delta}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(early_connection.python(session_directory("python"))))
        session = open_session(PipelineSettings(master="local[2]", spark=settings))
    yield session
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # ends Java
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
    gc.collect()  # py4j logs when its connections are deleted; later, pytest has closed the log


@pytest.fixture(scope="session")
def bucket(session_directory: MakeDirectory) -> Iterator[S3Proxy]:
    """A proxy before an S3 server, whose bucket is ``lake``."""
    server = S3(session_directory("s3"))
    proxy = S3Proxy(server.endpoint)
    yield proxy
    proxy.close()
    server.kill()


@pytest.fixture
def s3(bucket: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Proxy:
    """The server, named by the variables of the environment alone."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": bucket.endpoint}.items():
        monkeypatch.setenv(name, value)
    bucket.follow(Rules())
    return bucket


@pytest.fixture
def stored(spark: SparkSession, s3: S3Proxy) -> Pipeline:
    """A lake and its tables in a bucket, both empty."""
    settings = spark_settings(os.environ)
    settings |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in IN_SHARED_SESSION.items()}
    for name, value in settings.items():
        spark.conf.set(name.removeprefix("spark.hadoop."), value)
    return Pipeline(spark, f"s3://lake/{uuid.uuid4().hex}")


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """A lake and its tables, both empty."""
    return Pipeline(spark, tmp_path)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The settings of a catalog of Iceberg tables."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}


@pytest.fixture
def iceberg(spark: SparkSession, tmp_path: Path, catalog: Mapping[str, str]) -> Pipeline:
    """A lake and its Iceberg tables, both empty."""
    return Pipeline(spark, tmp_path, catalog=catalog)


@pytest.fixture
def stored_iceberg(stored: Pipeline, catalog: Mapping[str, str]) -> Pipeline:
    """``stored``, with Iceberg tables in the bucket."""
    stored.catalog = catalog
    return stored


@pytest.fixture(params=["pipeline", "iceberg"], ids=["delta", "iceberg"])
def in_format(request: pytest.FixtureRequest) -> Pipeline:
    """``pipeline``, and then ``iceberg``."""
    found: Pipeline = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["directory", "bucket"])
def either(request: pytest.FixtureRequest) -> Pipeline:
    """``pipeline``, and then ``stored``."""
    name = "pipeline" if request.param == "directory" else "stored"
    found: Pipeline = request.getfixturevalue(name)
    return found
