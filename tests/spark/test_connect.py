"""What runs in Spark Connect: a session with both views, and the pipeline of docs/examples.

The pipeline has AUTO CDC into tables of Iceberg.
Iceberg has no jar for Spark 4.3 yet: ``IcebergCatalog.java`` says what is missing in that for 4.1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from pyiceberg.table import StaticTable
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.connect.session import SparkSession as RemoteSession

from tailrace.spark import register
from tests.checkout import ROOT
from tests.daemon import until
from tests.machine import run
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.scratch import MakeDirectory
from tests.spark.connect_server import LONG, ConnectServer
from tests.spark.fetched_jars import fetched

HERE = Path(__file__).parent
EXAMPLE = ROOT / "docs" / "examples" / "lakeflow.py"
PAGE = ROOT / "docs" / "spark.md"


@pytest.fixture(scope="module")
def server(java: None, session_directory: MakeDirectory) -> Iterator[ConnectServer]:
    """A server with the catalog of Iceberg."""
    directory = session_directory("connect")
    runtime, compiler = fetched("iceberg-jars")
    program = Path(home, "bin", "java") if (home := os.environ.get("JAVA_HOME")) else "java"
    there = ":".join(map(str, [runtime, *Path(pyspark.__path__[0], "jars").glob("*.jar")]))
    arguments = ["-nowarn", "--release", "17", "-classpath", there, "-d", str(directory)]
    run([str(program), "-jar", str(compiler), *arguments, str(HERE / "IcebergCatalog.java")])
    server = ConnectServer(directory, f"{runtime}:{directory}")
    yield server
    server.kill()


class Pipeline:
    """``spark-pipelines run`` with the example, and the specification of the page."""

    def __init__(self, directory: Path, server: ConnectServer) -> None:
        self._directory = directory
        self._server = server
        (documented,) = re.findall(r"```yml\n(.*?)```", PAGE.read_text(), re.DOTALL)
        specification = yaml.safe_load(documented)
        catalog = specification["catalog"]
        warehouse, self.hold = directory / "tables", directory / "hold"
        self._tables = warehouse / specification["database"]
        self._tables.mkdir(parents=True)
        checkpoints = directory / "storage" / "_checkpoints"
        self._checkpoints = checkpoints / catalog / specification["database"]
        specification["storage"] = f"file://{directory}/storage"
        specification["configuration"] |= {
            "spark.tailrace.lake": str(directory / "lake"),
            f"spark.sql.catalog.{catalog}": "tests.IcebergCatalog",
            f"spark.sql.catalog.{catalog}.warehouse": str(warehouse),
            f"spark.sql.catalog.{catalog}.hold": str(self.hold),
        }
        shutil.copy(EXAMPLE, directory)
        (directory / "spark-pipeline.yml").write_text(yaml.safe_dump(specification))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with open(self._directory / "log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
                cwd=self._directory,
                env={**self._server.environment, "SPARK_REMOTE": self._server.url},
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text() + self._server.log

    def batches(self, table: str) -> int:
        """How many Spark has noted as done."""
        commits = (self._checkpoints / table).glob("*/*/commits/*")
        return sum(each.name.isdigit() for each in commits)

    def has_snapshot(self, tables: str) -> bool:
        """Whether something is committed to one of the tables of this pattern."""
        return any(self._tables.glob(f"{tables}/metadata/v2.metadata.json"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        metadata = self._tables / table / "metadata"
        number = (metadata / "version-hint.text").read_text()
        found = StaticTable.from_metadata(f"{metadata}/v{number}.metadata.json").scan().to_arrow()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows


def test_auto_cdc_has_each_version_once_though_spark_is_killed(
    server: ConnectServer, tmp_path: Path
) -> None:
    """Each of both batches that are killed comes again, though its table or state has it."""
    landing, s = Landing(tmp_path / "lake"), Stream()
    landing.land([s.insert(1, n=1), s.insert(2, n=1), s.insert(3, "older", n=0)])
    update = s.update(1, image={"_id": 1, "n": 2}, n=2)
    landing.land([update, s.delete(2), s.insert(4)])
    pipeline = Pipeline(tmp_path, server)
    pipeline.hold.touch()

    server.start()
    with pipeline.running() as process:

        def have_committed() -> bool:
            assert process.poll() is None, pipeline.log
            return all(map(pipeline.has_snapshot, ("*orders", "*orders_history")))

        until(have_committed, "a commit of documents and one of versions", LONG)
        server.kill()
    assert [pipeline.batches(each) for each in ("orders", "orders_history")] == [0, 0]
    pipeline.hold.unlink()

    landing.land([update, s.update(1, n=3), s.insert(2, n=5)])
    landing.land([s.rename("older", "orders"), s.insert(5, n=5)])
    server.start()
    with pipeline.running() as process:
        process.wait(LONG)
    # Not the exit code: with Python's accumulators in the answer, PySpark 4.3.0 ends with an error
    # after that.
    assert "Run is COMPLETED." in pipeline.log, pipeline.log
    assert [pipeline.batches(each) for each in ("orders", "orders_history")] == [2, 2]
    versions = {
        (1, '{"_id":1,"n":1}', 0, 3),
        (1, '{"_id":1,"n":2}', 3, 7),
        (1, '{"_id":1,"n":3}', 7, 9),
        (2, '{"_id":2,"n":1}', 1, 4),
        (2, '{"_id":2,"n":5}', 8, 9),
        (3, '{"_id":3,"n":0}', 9, None),
        (4, '{"_id":4}', 5, 9),
        (5, '{"_id":5,"n":5}', 10, None),
    }
    history = [
        (*_document(row), _ordinal(row["__START_AT"]), _ordinal(row["__END_AT"]))
        for row in pipeline.rows("orders_history")
    ]
    assert sorted(history, key=str) == sorted(versions, key=str)
    present = [_document(row) for row in pipeline.rows("orders")]
    assert sorted(present) == [
        (key, document) for key, document, _, end in sorted(versions, key=str) if end is None
    ]


def test_a_session_of_connect_reads_both_views_once_and_as_streams(
    server: ConnectServer, tmp_path: Path
) -> None:
    server.start()
    landing, s = Landing(tmp_path / "lake"), Stream()
    landing.land([s.insert(1, n=1), s.insert(2, n=1)])
    landing.land([s.delete(2), s.drop()])
    spark = RemoteSession.builder.remote(server.url).create()
    register(spark)

    def options(view: str) -> dict[str, str]:
        return {"lake": str(landing.path), "view": view}

    def read(view: str, *columns: str) -> list[Row]:
        found = spark.read.format("tailrace").options(**options(view)).load()
        return sorted(found.select(*columns).collect())

    def stream(view: str, *columns: str) -> list[Row]:
        changes = spark.readStream.format("tailrace").options(**options(view)).load()
        writer = changes.select(*columns).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint of {view}")
        query = writer.trigger(availableNow=True).start(f"{tmp_path}/{view}")
        query.awaitTermination()
        return sorted(spark.read.parquet(f"{tmp_path}/{view}").collect())

    events = ("ordinal", "operation")
    there = [(0, "insert"), (1, "insert"), (2, "delete"), (3, "drop")]
    assert read("events", *events) == stream("events", *events) == there
    changes = ("key", "operation", "document")
    effects = [
        ('{"$numberInt":"1"}', "delete", None),
        ('{"$numberInt":"1"}', "upsert", '{"_id":1,"n":1}'),
        ('{"$numberInt":"2"}', "delete", None),
        ('{"$numberInt":"2"}', "upsert", '{"_id":2,"n":1}'),
    ]
    assert read("changes", *changes) == stream("changes", *changes) == effects
    landing.land([s.insert(3)])
    assert stream("events", *events) == [*there, (4, "insert")]
    last = ('{"$numberInt":"3"}', "upsert", '{"_id":3}')
    assert stream("changes", *changes) == [*effects, last]
    with pytest.raises(PySparkException, match="unknown option 'scop' of the format tailrace"):
        spark.read.format("tailrace").options(scop="a", **options("events")).load().collect()
    spark.stop()


def _document(row: dict[str, Any]) -> tuple[int, str]:
    return int(json.loads(row["key"])["$numberInt"]), row["document"]


def _ordinal(sequence: str | None) -> int | None:
    """That of the event that begins or ends a version."""
    return None if sequence is None else int(sequence[-18:])
