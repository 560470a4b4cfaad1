"""The demo's workload: the same seed gives the same shop, and exactly the promised events."""

from __future__ import annotations

from itertools import islice
from typing import Any

import anyio
import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from tailrace.demo.plan import MARKERS, Writer
from tailrace.demo.verification import compare, replay
from tailrace.demo.workload import Shop, read_source, run_workload, write_marker
from tailrace.event.extended_json import to_json
from tests.mongod import ReplicaSet

RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)


def test_a_plan_depends_on_its_seed_alone() -> None:
    """Two writers of one seed and number think alike; others do not. (NaN: compared as text.)"""
    plans = [repr(list(Writer(*who).steps(300))) for who in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert plans[0] == plans[1]
    assert len(set(plans)) == 3


@pytest.mark.parametrize("events", [0, 1, 7, 100])
def test_a_plan_has_the_events_that_were_asked_for(events: int) -> None:
    """Or a few more, where the last step is one of several events."""
    total = sum(step.events for step in Writer(1, 0).steps(events))
    assert events <= total < events + 5


def test_a_plan_has_every_kind_of_step_and_every_type_of_value() -> None:
    """What the demo claims to show, it shows."""
    writer = Writer(1, 0)
    steps = list(writer.steps(500))
    writer.archive()
    steps += writer.steps(500)
    assert {step.action for step in steps} == {
        "insert",
        "insert_many",
        "update",
        "replace",
        "delete",
        "transaction",
    }
    first = next(step for step in islice(steps, 10) if step.action == "insert")
    line = to_json(bson.encode(first.arguments[0]), canonical=True)
    for kind in ("numberLong", "numberDecimal", "date", "binary", "timestamp", "minKey", "code"):
        assert f'"${kind}"' in line


@pytest.mark.integration
async def test_the_events_are_those_that_were_counted_and_give_the_source(
    mongod: ReplicaSet, database: str
) -> None:
    """Twice with one seed on one server: counted exactly, replayed exactly, the same shop."""
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
                await write_marker(shop, "end")
            played = replay(lines)
            source = await read_source(shop)
            assert written == seen[-1] == len(lines) - 1
            assert seen == sorted(seen)
            assert (played.duplicates, played.unfounded) == (0, [])
            assert played.operations.keys() >= {"rename", "drop", "delete", "replace", "update"}
            assert compare(played.collections, source) == []
            shops.append({name: sorted(documents) for name, documents in source.items()})
            await client.drop_database(database)
    assert shops[0] == shops[1]


async def collect(shop: Shop, lines: list[str], started: anyio.Event) -> None:
    """Everything that a stream of the database delivers, up to the marker."""
    raw: Any = shop.with_options(codec_options=RAW)
    async with await raw.watch() as stream:
        started.set()
        async for event in stream:
            lines.append(to_json(bytes(event.raw), canonical=True))
            if event["ns"].get("coll") == MARKERS:
                return
