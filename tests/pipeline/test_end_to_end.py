"""A workload through the real daemon, the lake and Spark: the tables equal the collections."""

import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
    """Updates without images, while the daemon is killed. The demo tests looked-up images."""
    run = daemon(
        mongod.uri,
        scopes=[{"name": "plain", "database": database, "max_await_time_ms": 100}],
        handlers={"lake": {"type": "parquet", "path": str(pipeline.lake), "segment_seconds": 0.1}},
        routes=[{"scope": "plain", "handlers": ["lake"]}],
        pipeline={"tables": str(pipeline.tables)},
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
    row = pipeline.table(f"current/{name}")[0]
    asked = ("--scope", "plain", "--key", row["document_key"], "--collection", name)
    found = json.loads(run.command("why", *asked, "--json"))
    landed, current = found["landed"][0], found["tables"][0]
    assert landed["ordinal"] == current["ordinal"] == row["ordinal"]
    assert current["has_document"]
    assert all(each["segment"] >= landed["number"] for each in found["tables"])


def test_tables_equal_the_collections_after_a_gap(
    tmp_path: Path, daemon: Callable[..., Daemon], pipeline: Pipeline
) -> None:
    """Collections are dropped, renamed and recreated while the oplog loses all of it."""
    server = ReplicaSet(tmp_path / "small", flags={"--oplogSize": "1", "--syncdelay": "1"})
    scope = {"name": "gap", "database": "shop", "max_await_time_ms": 100}
    run = daemon(
        server.uri,
        scopes=[{**scope, "on_history_lost": "snapshot"}],
        handlers={"lake": {"type": "parquet", "path": str(pipeline.lake), "segment_seconds": 0.1}},
        routes=[{"scope": "gap", "handlers": ["lake"]}],
    )

    def landed(operation: str) -> int:
        return sum(row["operation"] == operation for row in rows(pipeline.lake, "gap"))

    try:
        with server.client() as client:
            shop, names = client["shop"], ("kept", "dropped", "renamed", "remade", "capped")
            shop.create_collection("capped", capped=True, size=10_000)
            run.start()
            for name in names:
                shop[name].insert_many([{"_id": n, "v": 0} for n in range(20)])
            until(lambda: landed("insert") == 20 * len(names), "the first documents")
            assert run.stop() == 0
            pipeline.run()
            shop.kept.delete_many({"_id": {"$lt": 5}})
            shop.kept.update_many({}, {"$set": {"v": 1}})
            shop.dropped.drop()
            shop.renamed.rename("target")
            shop.remade.drop()
            shop.remade.insert_one({"_id": 3, "v": 2})
            server.forget_history()
            run.start()
            until(lambda: landed("snapshotEnd"), "the end of the snapshot")
            shop.dropped.insert_one({"_id": 7, "v": 3})
            until(lambda: landed("insert") > 20 * len(names), "the last document")
        assert run.stop() == 0
        source = anyio.run(read_source, server.uri, "shop")
    finally:
        server.stop()
    pipeline.run()
    assert {name for name, found in source.items() if found} == {
        *(f"shop.{name}" for name in ("kept", "target", "remade", "capped", "dropped")),
    }
    assert compare_tables(pipeline.tables, source) == []
    assert pipeline.current("shop.renamed") == {}
    ends = [each[3] for each in pipeline.history("shop.renamed")]
    assert ends == ["snapshotEnd"] * 20
    live = [each for each in pipeline.history("shop.dropped") if each[3] is None]
    assert live == [(7, {"v": 3}, "insert", None)]


async def read_source(uri: str, database: str) -> dict[str, list[bytes]]:
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        return await workload.read_source(client[database])


async def write(uri: str, database: str) -> dict[str, list[bytes]]:
    """Documents of every type, transactions, a rename and a drop; returns the final content."""
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        await workload.run(client[database], EVENTS, lambda written: None)
        await workload.write_last_change(client[database])
        return await workload.read_source(client[database])
