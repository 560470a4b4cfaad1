"""Snapshots beside writers on mongod: the events give the source, at each chunk's time as well.

Several writers change, delete, move and recreate documents, alone and in transactions, while a
scope's documents are read in small chunks.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.engine.status.document import status_document
from tailrace.engine.status.gauges import gauges
from tailrace.errors import DestinationUnavailable
from tailrace.event import ChangeEvent
from tailrace.snapshot.options import SnapshotOptions
from tests.handlers import handler
from tests.snapshots import Recorder, Scene, State, fold
from tests.writers import Writers, mixed_ids

MOST_FAILURES = 30
SMALL = SnapshotOptions(initial=True, chunk_documents=7)
SEVERAL = replace(SMALL, parallel=4)


def fill(scene: Scene, name: str, ids: Sequence[Any]) -> None:
    scene.db[name].insert_many([{"_id": each, "v": "before"} for each in ids])


def times(events: Sequence[ChangeEvent]) -> list[Timestamp]:
    found = [event.cluster_time for event in events]
    assert None not in found
    return [time for time in found if time is not None]


def check_line(events: Sequence[ChangeEvent]) -> None:
    """Rows come after every event up to their time, and before every later one.

    This holds for a handler that received everything in the stream's order, in one run.
    """
    assert times(events) == sorted(times(events))
    for one, other in pairwise(events):
        if "snapshot" in one.id and "snapshot" not in other.id:
            assert times([other]) > times([one])


def check_chunks(events: Sequence[ChangeEvent], states: dict[Timestamp, State]) -> None:
    """Each row is what the source contained at the row's time."""
    for row in events:
        if row.operation_type == "read":
            (time,) = times([row])
            key = row.key
            assert key is not None
            assert states[time].get(key) == bson.encode(row.full_document or {})


class History:
    """The content of a collection at any time since it was filled, from another stream's events."""

    def __init__(self, filled: State, events: Sequence[ChangeEvent]) -> None:
        self._filled, self._events = filled, events

    def at(self, wanted: set[Timestamp]) -> dict[Timestamp, State]:
        found, state, index = {}, dict(self._filled), 0
        for time in sorted(wanted):
            while index < len(self._events) and times([self._events[index]])[0] <= time:
                fold([self._events[index]], state)
                index += 1
            found[time] = dict(state)
        return found


def read_all(stream: Any, until: Timestamp) -> list[ChangeEvent]:
    """The events of PyMongo's own stream up to a time."""
    found: list[ChangeEvent] = []
    while True:
        change = stream.try_next()
        if change is not None:
            if change["clusterTime"] > until:
                return found
            found.append(ChangeEvent.from_document(change))
        elif _time(stream.resume_token) > until:
            return found


def _time(token: Any) -> Timestamp:
    data = token["_data"]
    return Timestamp(int(data[2:10], 16), int(data[10:18], 16))


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ranges small, so that these collections are divided if chunks are read in parallel."""
    monkeypatch.setattr("tailrace.snapshot.plan.RANGE_DOCUMENTS", 50)


@pytest.mark.parametrize(
    ("seed", "driver", "options"), [(0, "motor", SEVERAL), (1, "pymongo", SMALL)]
)
async def test_every_chunk_is_the_source_at_its_time(
    scene: Scene,
    seed: int,
    driver: str,
    options: SnapshotOptions,
) -> None:
    ids = mixed_ids(600)
    fill(scene, "c", ids[:400])
    filled = scene.source("c")
    copy = scene.copy("c", options=options, driver_name=driver)
    with scene.db.c.watch(max_await_time_ms=50) as witness:
        with Writers(scene.client, scene.database, ["c"], ids, seed, behind=copy.is_behind):
            async with copy.run():
                await copy.until_done()
        async with copy.run():
            end = scene.now()
            await copy.until_handled(end)
        events = copy.recorder.events
        truth = History(filled, read_all(witness, end))
    check_line(events)
    rows = [event for event in events if event.operation_type == "read"]
    states = truth.at(set(times(rows)))
    check_chunks(events, states)
    assert len({str(row.document_key) for row in rows}) == len(rows)
    assert fold(events) == scene.source("c")
    assert len(rows) >= 200
    assert [copy.recorder.count(name) for name in ("snapshotBegin", "snapshotEnd")] == [1, 1]


@pytest.mark.parametrize(("seed", "by_batch"), [(0, True), (1, False)])
async def test_crashes_and_stops_lose_nothing(scene: Scene, seed: int, by_batch: bool) -> None:
    """A crash repeats at most the events in flight; a clean stop repeats nothing."""
    ids = mixed_ids(1500)
    fill(scene, "c", ids[:1000])
    options = SnapshotOptions(initial=True, chunk_documents=40, parallel=1 + 2 * seed)
    copy = scene.copy("c", Recorder(delay=0.002), options, by_batch=by_batch)
    with Writers(
        scene.client, scene.database, ["c"], ids, seed, pause=0.003, behind=copy.is_behind
    ):
        for kill in (True, False, True, False, True, False):
            async with copy.run(kill=kill):
                await copy.until_rows(60)
        async with copy.run():
            await copy.until_done()
    async with copy.run():
        await copy.until_handled(scene.now())
    held = fold(copy.recorder.events)
    assert held == scene.source("c")


async def test_a_clean_stop_repeats_no_document(scene: Scene) -> None:
    fill(scene, "c", mixed_ids(1000))
    for by_batch in (True, False):
        copy = scene.copy(
            "c",
            Recorder(delay=0.001),
            SnapshotOptions(initial=True, chunk_documents=30, parallel=3),
            by_batch=by_batch,
        )
        for _ in range(4):
            async with copy.run():
                await copy.until_rows(100)
        async with copy.run():
            await copy.until_done()
        assert len(copy.recorder.rows) == 1000
        assert fold(copy.recorder.events) == scene.source("c")


@pytest.mark.parametrize("seed", range(2))
async def test_handlers_that_fail_do_not_go_back(scene: Scene, seed: int) -> None:
    """Each failure ends the run. Rows must not overwrite what one handler has beyond the others.

    A row that comes again must not be older than its handler's state of the document. After some
    failures there are no more: where a start takes long, the writers would always be ahead.
    """
    dice, failed = random.Random(seed), list[int]()

    def fails(events: Sequence[ChangeEvent]) -> Exception | None:
        first = not failed and any(event.operation_type == "read" for event in events)
        if first or (dice.random() < 0.02 and len(failed) < MOST_FAILURES):
            failed.append(len(events))
            return DestinationUnavailable("at the first rows, and by chance")
        return None

    ids = mixed_ids(500)
    fill(scene, "c", ids[:400])
    quick, slow = Recorder(), Recorder(delay=0.002)
    options = SnapshotOptions(initial=True, chunk_documents=15, documents_per_second=400)
    copy = scene.copy(
        "c",
        Recorder(fails=fails),
        options,
        beside=[handler("quick", quick.on_event), handler("slow", on_events=slow.on_events)],
    )
    with Writers(
        scene.client, scene.database, ["c"], ids, seed, pause=0.004, behind=copy.is_behind
    ):
        async with copy.run() as watcher:
            await copy.until_done()
            assert watcher.status.counts.restarts
    async with copy.run():
        await copy.until_handled(scene.now())
    for recorder in (copy.recorder, quick, slow):
        assert fold(recorder.events) == scene.source("c")
        check_no_way_back(recorder.events)


def check_no_way_back(events: Sequence[ChangeEvent]) -> None:
    """No row of a document is older than the newest of its events handed over before.

    A repeated event may be older, because all events after it are repeated too.
    """
    newest: dict[bytes, Timestamp] = {}
    for event in events:
        if event.key is not None:
            (time,) = times([event])
            if event.operation_type == "read":
                assert time >= newest.get(event.key, time)
            newest[event.key] = max(time, newest.get(event.key, time))


async def test_transactions_stay_whole_beside_rows(scene: Scene) -> None:
    ids = mixed_ids(600)
    fill(scene, "c", ids[:400])
    copy = scene.copy("c", options=SMALL, grouped=True)
    with Writers(scene.client, scene.database, ["c"], ids, 1, behind=copy.is_behind):
        async with copy.run():
            await copy.until_done()
    async with copy.run():
        await copy.until_handled(scene.now())
    events = copy.recorder.events
    check_line(events)
    assert fold(events) == scene.source("c")
    called = [call for call, count in enumerate(copy.recorder.calls) for _ in range(count)]
    transactions: dict[str, set[int]] = {}
    for event, call in zip(events, called, strict=True):
        if event.txn_number is not None:
            transactions.setdefault(f"{event.lsid}/{event.txn_number}", set()).add(call)
    assert transactions
    assert all(len(calls) == 1 for calls in transactions.values())


async def test_a_snapshot_is_done_when_its_rows_are_handled(scene: Scene) -> None:
    """All documents are read long before."""
    fill(scene, "c", range(40))
    released = anyio.Event()

    class Held(Recorder):
        async def on_events(self, events: Sequence[ChangeEvent]) -> None:
            if any(event.operation_type == "read" for event in events):
                await released.wait()
            await super().on_events(events)

    copy = scene.copy("c", Held(), replace(SMALL, chunk_documents=100))

    def shown() -> dict[str, Any]:
        found = status_document(copy.watcher.status)["snapshot"]
        assert isinstance(found, dict)
        return found

    async with copy.run():
        read = copy.snapshots
        await copy.until(lambda: read.progress is not None and read.progress.over)
        with capture_logs() as logs:
            snapshot = shown()
            assert snapshot["state"] == "reading"
            assert snapshot["collections"][0]["documents"] < 40
            assert "handlers have still to handle" in snapshot["reason"]
            documents = gauges(copy.watcher.status).snapshot
            assert [count for count, _ in documents.values()] == [snapshot["documents"]]
            released.set()
            await copy.until(lambda: shown()["state"] == "done")
            await copy.until(lambda: copy.saved is not None and copy.saved.over)
            assert (shown()["documents"], shown()["remaining"]) == (40, 0)
            await copy.until(lambda: "snapshot.done" in [log["event"] for log in logs])
