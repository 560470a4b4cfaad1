"""A lake, the job that reads it, and its tables as other readers see them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars
from pyspark.sql import SparkSession

from tailrace.config.catalog import TablesAt
from tailrace.config.pipeline import PipelineSettings
from tailrace.lake.segment import Documents
from tailrace.pipeline import log_commit
from tailrace.pipeline.job import Job, JobProgress
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake, all_segments
from tailrace.pipeline.tables import TableStore, open_store
from tailrace.pipeline.tables.iceberg import IcebergStore
from tests.pipeline.landing import Landing

_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


class Pipeline:
    """``catalog``: pyiceberg's settings, for Iceberg tables."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path | str,
        documents: Documents = Documents.BSON,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        self.spark = spark
        local = isinstance(directory, Path)
        self.lake, self.tables = (
            directory / name if local else f"{directory}/{name}" for name in ("lake", "tables")
        )
        self.landing = Landing(self.lake, documents)
        self.land = self.landing.land
        self.catalog = catalog

    @property
    def tables_at(self) -> TablesAt:
        """Another directory is another namespace."""
        namespace = re.sub(r"\W", "_", str(self.tables).rpartition("/")[2])
        return TablesAt(str(self.tables), self.catalog, namespace)

    @property
    def section(self) -> dict[str, Any]:
        """The section of a configuration with which commands find the lake and the tables."""
        at, lake = self.tables_at, str(self.lake)
        if at.catalog is None:
            return {"lake": lake, "tables": at.where}
        named = {"catalog": dict(at.catalog), "warehouse": at.where, "namespace": at.namespace}
        return {"lake": lake, "format": "iceberg", **named}

    @property
    def store(self) -> TableStore:
        return open_store(self.tables_at)

    def job(self, columns: Any = None, publish_ratio: float = 0, **settings: Any) -> Job:
        return Job(
            self.spark,
            LandedLake.open(Location.of(str(self.lake))),
            self.store,
            PipelineSettings(publish_ratio=publish_ratio, **settings),
            None if columns is None else PipelineSettings(columns=columns).columns,
        )

    def run(self, **settings: Any) -> JobProgress:
        """Does what ``tailrace pipeline --once`` does."""
        if self.catalog:
            self.store.require_writable()  # creates namespaces, which tables share
        job = self.job(**settings)
        job.catch_up()
        while job.step():
            pass
        job.finish()
        return job.progress

    def append(self) -> None:
        """Writes the log alone, a segment in each commit: no other table is made of it."""
        job = self.job()
        log = job.log.load()
        for segment in all_segments(job.lake):
            log, _ = log_commit.append(self.spark, log, [[segment]])

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Spark compiles expressions, as it does for users; the tests' session interprets them."""
        conf = self.spark.conf
        before = {name: conf.get(name) for name in _COMPILED}
        for name, value in _COMPILED.items():
            conf.set(name, value)
        yield
        for name, value in before.items():
            conf.set(name, value)

    def frame(self, name: str) -> polars.DataFrame:
        """A table as read by polars."""
        store = self.store
        if isinstance(store, IcebergStore):
            stored = store.stored(name)
            assert stored is not None
            return polars.scan_iceberg(stored).collect()
        where = Location.of(f"{self.tables}/{name}")
        return polars.read_delta(where.uri, storage_options=dict(where.options))

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table as read by polars."""
        return self.frame(name).to_dicts()

    def collections(self) -> list[str]:
        """The names of the tables in ``current``."""
        return [*self.store.names("current")]

    def current(self, collection: str = "shop.orders") -> dict[str, Any]:
        """The live documents as plain JSON, by the text of their key; each key once."""
        rows = self.table(f"current/{collection}")
        found = {_name(row["document_key"]): _plain(row["document"]) for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found

    def history(self, collection: str = "shop.orders") -> list[tuple[Any, ...]]:
        """``(key, document, operation, ended_by)`` of every version, ordered by key and time."""
        rows = self.table(f"history/{collection}")
        for row in rows:
            assert row["is_current"] == (row["valid_to_position"] is None)
            assert row["is_current"] == (row["valid_to"] is None)
        rows.sort(key=lambda row: (row["key"], row["valid_from_position"]))
        for one, other in pairwise(rows):
            if one["key"] == other["key"]:
                assert one["valid_to_position"] is not None
                assert one["valid_to_position"] <= other["valid_from_position"]
        return [
            (
                _name(row["document_key"]),
                _plain(row["document"]),
                row["operation"],
                row["ended_by"],
            )
            for row in rows
        ]


_LEAN = """
import sys
from tailrace.cli import main

slow, *options = sys.argv[1:]
assert main(["pipeline", "--once", *options]) == 0
assert not {*slow.split()} & {*sys.modules}, "which take as long as all else"
"""


def run_without_news(*options: str, slow: str = "pandas pyspark") -> None:
    """A process in which ``tailrace pipeline --once`` must not import what is ``slow``."""
    subprocess.run([sys.executable, "-c", _LEAN, slow, *options], check=True)


def _integer(pairs: dict[str, Any]) -> Any:
    if pairs and set(pairs) <= {"$numberInt", "$numberLong"}:
        return int(next(iter(pairs.values())))
    return pairs


def _plain(text: str | None) -> Any:
    """A document without its ``_id``, and with canonical integers as integers."""
    if text is None:
        return None
    document = json.loads(text, object_hook=_integer)
    document.pop("_id", None)
    return document


def _name(key: str) -> Any:
    value = json.loads(key, object_hook=_integer)["_id"]
    return value if isinstance(value, str | int) else json.dumps(value)
