"""A workload through the real daemon, the lake and Spark: the tables equal the collections."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import bson
import pytest
from pymongo import AsyncMongoClient

from tailrace.demo import workload
from tailrace.demo.tables import compare_tables
from tests.daemon import Daemon, until
from tests.lake import rows
from tests.mongod import ReplicaSet
from tests.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.integration

EVENTS = 400
END = bson.encode({"_id": workload.LAST_CHANGE})


def test_tables_equal_the_collections(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon], pipeline: Pipeline
) -> None:
    """Updates without images, while the daemon is killed; the demo proves looked-up images."""
    run = daemon(
        mongod.uri,
        scopes=[{"name": "plain", "database": database, "max_await_time_ms": 100}],
        handlers={"lake": {"type": "parquet", "path": str(pipeline.lake), "segment_seconds": 0.1}},
        routes=[{"scope": "plain", "handlers": ["lake"]}],
    ).start()

    def keys() -> list[bytes | None]:
        if not (pipeline.lake / "plain").exists():
            return []
        return [row["document_key"] for row in rows(pipeline.lake, "plain")]

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(anyio.run, write, mongod.uri, database)
        for part in (0.2, 0.5):
            until(lambda: len(keys()) >= part * EVENTS, "a part")  # noqa: B023
            run.signal(signal.SIGKILL)
            run.wait()
            run.start()
        source = writing.result(timeout=120)
        until(lambda: END in keys(), f"the last change; the log ends:\n{run.log[-2000:]}")
        assert run.stop() == 0
    pipeline.run()
    assert sum(map(len, source.values())) > EVENTS / 8
    assert compare_tables(pipeline.tables, source) == []
    columns = ("key", "document", "operation", "cluster_seconds", "cluster_increment", "ordinal")
    for name in source:
        pipeline.history(name)
        live, open_versions = (
            sorted(tuple(row[column] for column in columns) for row in table)
            for table in (
                pipeline.table(f"current/{name}"),
                [row for row in pipeline.table(f"history/{name}") if row["is_current"]],
            )
        )
        assert open_versions == live


async def write(uri: str, database: str) -> dict[str, list[bytes]]:
    """Documents of every type, transactions, a rename and a drop; returns what is there then."""
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        await workload.run(client[database], EVENTS, lambda written: None)
        await workload.write_last_change(client[database])
        return await workload.read_source(client[database])
