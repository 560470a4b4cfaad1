"""A process ends at any step of a chunk: only what was not saved comes again."""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

import anyio
import bson
import pytest

from tailrace.event import ChangeEvent
from tailrace.model import SnapshotProgress
from tailrace.stores import sqlite
from tests.daemon import Daemon, until
from tests.orders import Orders
from tests.snapshots import fold, source
from tests.writers import Writers

IDS = range(360)
STEPS = ("unread", "read", "placed", "handled in part", "handled", "saved", "stopped")
"""Stopped cleanly in the middle of a chunk; at every other step, killed."""
ENDS = (2, 3)
"""The chunk in which each process ends."""
_length = Struct("<i").unpack_from


@dataclass
class Handled:
    """What the processes of a daemon have handled, read from where the last process ended."""

    path: Path
    position: int = 0

    def events(self) -> list[ChangeEvent]:
        """The events since the last call."""
        raw = self.path.read_bytes() if self.path.exists() else b""
        found = []
        while self.position < len(raw):
            (length,) = _length(raw, self.position)
            found.append(ChangeEvent.from_raw(raw[self.position : self.position + length]))
            self.position += length
        return found


def saved(run: Daemon) -> SnapshotProgress | None:
    async def load() -> SnapshotProgress | None:
        async with sqlite.open_store(run.directory / "tailrace.db") as store:
            checkpoint = await store.checkpoints.load("orders")
        return checkpoint and checkpoint.position.snapshot

    return anyio.run(load)


def last_saved(run: Daemon) -> int:
    """The ``_id`` of the last document that the checkpoint covers."""
    progress = saved(run)
    ranges = progress.ranges.values() if progress is not None else ()
    ids = [bson.decode(each.last.raw)["_id"] for each in ranges if each.last is not None]
    return int(ids[0]) if ids else -1


def rows(events: list[ChangeEvent]) -> list[Any]:
    return [(event.document_key or {})["_id"] for event in events if event.operation_type == "read"]


@pytest.mark.parametrize(
    ("step", "handler"),
    [*((step, "together") for step in STEPS), ("handled in part", "each"), ("stopped", "each")],
)
def test_after_a_kill_in_a_chunk_only_unsaved_rows_come_again(
    orders: Orders, step: str, handler: str
) -> None:
    chunks = {"mode": "initial", "chunk_documents": 20, "documents_per_second": 400}
    target = {"target": f"tests.faults.dying:{handler}"}
    run = orders.daemon(scope={"snapshot": chunks}, targets={"mine": target})
    handled, all_events = Handled(run.directory / "handled"), list[ChangeEvent]()
    with orders.server.client() as client:
        client[orders.database].orders.insert_many([{"_id": n, "v": 0} for n in IDS[:300]])
        behind, database = run.is_behind, orders.database
        with Writers(client, database, ["orders"], IDS, seed=5, pause=0.02, behind=behind):
            before, seen = -1, set[int]()
            for end in ENDS:
                run.environ = {"ENDS_AT": f"{step} {end}"}
                assert run.start(ready=False).wait() == (0 if step == "stopped" else -9), run.log
                events = handled.events()
                these = rows(events)
                assert len(set(these)) == len(these)
                assert min(these, default=before + 1) > before
                assert step != "stopped" or not seen & set(these)
                after = last_saved(run)
                assert after >= before
                assert step not in ("saved", "stopped") or after > before
                all_events += events
                seen |= set(these)
                before = after
            run.environ = {}
            run.start()
            run.until_copied()
        client[orders.database].orders.insert_one({"_id": 1000})
        until(lambda: all_events.extend(handled.events()) or came(all_events), "the last change")
        assert run.stop() == 0
        assert fold(all_events) == source(client, orders.database, ["orders"])


def came(events: list[ChangeEvent]) -> bool:
    return any(event.document_key == {"_id": 1000} for event in events)
