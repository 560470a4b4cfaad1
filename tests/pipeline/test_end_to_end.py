"""Random changes through the real daemon, the lake and Spark: the tables are the collections."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tailrace.demo.tables import compare_tables
from tailrace.pipeline.names import table_name
from tests.daemon import Daemon, until
from tests.lake import rows
from tests.mongod import ReplicaSet
from tests.pipeline.operations import Operations
from tests.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.integration

SEED = os.environ.get("TAILRACE_SEED", "1")
OPERATIONS = 60
"""Between two kills, in each database."""


def test_tables_equal_the_collections(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon], pipeline: Pipeline
) -> None:
    """Over kills of the daemon, with and without looked-up images, in two runs of the pipeline."""
    print(f"TAILRACE_SEED={SEED}")
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
    with mongod.client() as client:
        try:
            plain = Operations(client, bases["plain"], SEED)
            looked_up = Operations(client, bases["looked-up"], f"{SEED}x")
            looked_up.settle = lambda: settle(run, pipeline, "looked-up", looked_up)
            for part in range(4):
                plain.run(OPERATIONS)
                looked_up.run(OPERATIONS)
                if part == 2:
                    settle(run, pipeline, "plain", plain)
                    pipeline.run()  # the rest comes to tables that are there
                    continue
                run.signal(signal.SIGKILL)
                run.wait()
                plain.run(OPERATIONS // 3)  # while nobody looks
                run.start()
            for name, operations in (("plain", plain), ("looked-up", looked_up)):
                settle(run, pipeline, name, operations)
            assert run.stop() == 0
            source = {
                table_name(each.database, name): documents
                for each in (plain, looked_up)
                for name, documents in each.source().items()
            }
        finally:
            client.drop_database(bases["looked-up"])
    pipeline.run()
    assert {text.split()[0] for text in plain.done} >= {"rename", "drop", "commit", "abort"}
    assert sum(map(len, source.values())) > 20
    assert compare_tables(pipeline.tables, source) == [], "\n".join(plain.done + looked_up.done)
    for name in source:
        history_agrees(pipeline, name)


def settle(run: Daemon, pipeline: Pipeline, scope: str, operations: Operations) -> None:
    """Waits until all that was done so far has landed."""
    marker = operations.marker()
    until(
        lambda: marker in keys_of(pipeline, scope),
        f"the last change in {scope}; the log ends:\n{run.log[-2000:]}",
    )


def keys_of(pipeline: Pipeline, scope: str) -> list[bytes | None]:
    """The document keys of what has landed."""
    if not (pipeline.lake / scope).exists():
        return []
    return [row["document_key"] for row in rows(pipeline.lake, scope)]


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
