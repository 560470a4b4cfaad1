"""The demo's workload: the same seed gives the same shop, and exactly the promised events."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from tailrace.demo.verification import compare, replay
from tailrace.demo.workload import (
    LAST_CHANGE,
    Shop,
    read_source,
    run_workload,
    write_last_change,
)
from tailrace.event.extended_json import to_json
from tests.mongod import ReplicaSet

TYPES = ("numberLong", "numberDecimal", "date", "binary", "timestamp", "minKey", "code")
RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)


@pytest.mark.integration
async def test_the_events_are_those_that_were_counted_and_give_the_source(
    mongod: ReplicaSet, database: str
) -> None:
    """Twice with one seed on one server: counted exactly, replayed exactly, the same shop, with
    every type of value."""
    shops = []
    async with AsyncMongoClient[dict[str, Any]](mongod.uri) as client:
        shop = client[database]
        for _ in range(2):
            lines: list[str] = []
            seen: list[int] = []
            started = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, shop, lines, started)
                await started.wait()
                written = await run_workload(shop, events=400, seed=7, progress=seen.append)
                await write_last_change(shop)
            played = replay(lines)
            source = await read_source(shop)
            assert written == seen[-1] == len(lines) - 1
            assert seen == sorted(seen)
            assert (played.duplicates, played.unfounded) == (0, [])
            assert 400 <= written < 420
            for kind in TYPES:
                assert f'"${kind}"' in "".join(lines)
            assert played.operations.keys() >= {"rename", "drop", "delete", "replace", "update"}
            assert compare(played.collections, source) == []
            shops.append({name: sorted(documents) for name, documents in source.items()})
            await client.drop_database(database)
    assert shops[0] == shops[1]


async def collect(shop: Shop, lines: list[str], started: anyio.Event) -> None:
    """Everything that a stream of the database delivers, up to the last change."""
    raw: Any = shop.with_options(codec_options=RAW)
    async with await raw.watch() as stream:
        started.set()
        async for event in stream:
            lines.append(to_json(bytes(event.raw), canonical=True))
            if event.get("documentKey", {}).get("_id") == LAST_CHANGE:
                return
