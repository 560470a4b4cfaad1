"""A workload through the real daemon, the lake and Spark: the tables are the collections."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import bson
import pytest
from pymongo import AsyncMongoClient

from tailrace.demo.tables import compare_tables
from tailrace.demo.workload import LAST_CHANGE, read_source, run_workload, write_last_change
from tests.daemon import Daemon, until
from tests.lake import rows
from tests.mongod import ReplicaSet
from tests.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.integration

EVENTS = 400
END = bson.encode({"_id": LAST_CHANGE})


def test_tables_equal_the_collections(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon], pipeline: Pipeline
) -> None:
    """With and without looked-up images, while the daemon is killed, in two runs of the pipeline:
    the second one adds to tables that are there."""
    bases = {"plain": database, "looked-up": f"{database}x"}
    run = daemon(
        mongod.uri,
        scopes=[
            {"name": "plain", "database": bases["plain"], "max_await_time_ms": 100},
            {
                "name": "looked-up",
                "database": bases["looked-up"],
                "max_await_time_ms": 100,
                "full_document": "updateLookup",
            },
        ],
        handlers={"lake": {"type": "parquet", "path": str(pipeline.lake), "segment_seconds": 0.1}},
        routes=[{"scope": name, "handlers": ["lake"]} for name in bases],
    ).start()

    def keys(scope: str) -> list[bytes | None]:
        if not (pipeline.lake / scope).exists():
            return []
        return [row["document_key"] for row in rows(pipeline.lake, scope)]

    source: dict[str, list[bytes]] = {}
    with ThreadPoolExecutor(len(bases)) as threads, mongod.client() as client:
        try:
            writing = [
                threads.submit(anyio.run, write, mongod.uri, base, seed)
                for seed, base in enumerate(bases.values())
            ]
            for part in (0.2, 0.5):
                until(lambda: min(len(keys(scope)) for scope in bases) >= part * EVENTS, "a part")  # noqa: B023
                run.signal(signal.SIGKILL)
                run.wait()
                if part == 0.2:
                    pipeline.run()
                run.start()
            for written in writing:
                source |= written.result(timeout=120)
            until(
                lambda: all(END in keys(scope) for scope in bases),
                f"the last change; the log ends:\n{run.log[-2000:]}",
            )
            assert run.stop() == 0
        finally:
            client.drop_database(bases["looked-up"])
    pipeline.run()
    assert sum(map(len, source.values())) > EVENTS / 4
    assert compare_tables(pipeline.tables, source) == []
    for name in source:
        history_agrees(pipeline, name)


async def write(uri: str, database: str, seed: int) -> dict[str, list[bytes]]:
    """Documents of every type, transactions, a rename and a drop; and what they come to."""
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        await run_workload(client[database], events=EVENTS, seed=seed)
        await write_last_change(client[database])
        return await read_source(client[database])


def history_agrees(pipeline: Pipeline, name: str) -> None:
    """The open versions are the live documents, and those of one key do not overlap."""
    pipeline.history(name)
    columns = ("key", "document", "operation", "cluster_seconds", "cluster_increment", "ordinal")
    live, open_versions = (
        sorted(tuple(row[column] for column in columns) for row in table)
        for table in (
            pipeline.table(f"current/{name}"),
            [row for row in pipeline.table(f"history/{name}") if row["is_current"]],
        )
    )
    assert open_versions == live
