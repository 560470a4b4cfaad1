"""The scripted oplog: entries in order, a logical clock, and positions by token or by time.

It belongs to the server's loop: nothing here locks. Entries are kept as encoded BSON, so that
a reply is a matter of joining bytes. Time moves only when an entry or a no-op is written.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.timestamp import Timestamp

from . import wire
from .errors import ServerError
from .scopes import Namespace
from .tokens import event_token, high_water_token, is_high_water, token_time

_EXTRAORDINARY = frozenset({"drop", "rename", "dropDatabase", "invalidate"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One change as it goes to the client, and what routing needs to know of it."""

    raw: bytes
    token: bytes
    time: Timestamp
    operation: str
    namespace: Namespace | None
    renamed_to: Namespace | None = None

    @property
    def is_ordinary(self) -> bool:
        """Whether its namespace alone decides who sees it, and it ends no stream."""
        return self.operation not in _EXTRAORDINARY


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token points: behind the entry `index - 1`, and what the token was."""

    index: int
    source: Entry | None = None
    of_invalidate: bool = False


class Oplog:
    """Appends changes, keeps the clock, finds places; wakes whoever awaits `changed`."""

    def __init__(self, start_seconds: int) -> None:
        self.entries: list[Entry] = []
        self.now = Timestamp(start_seconds, 1)
        self.first_index = 0
        self.first_time = self.now
        self.changed = asyncio.Event()
        self._order: list[int] = []
        self._runs: list[int] = []
        self._bytes_before = [0]
        self._places: dict[bytes, Place] = {}
        self._index_in_time = 0

    @property
    def end(self) -> int:
        """The index behind the last entry."""
        return len(self.entries)

    def run_end(self, index: int) -> int:
        """Where the run ends that holds `index`: entries whose namespace treats them alike."""
        following = bisect.bisect_right(self._runs, index)
        return self._runs[following] if following < len(self._runs) else self.end

    def within(self, index: int, size: int) -> int:
        """The furthest end of entries from `index` on that take no more than `size` bytes."""
        return bisect.bisect_right(self._bytes_before, self._bytes_before[index] + size) - 1

    def bytes_between(self, index: int, stop: int) -> int:
        """How big those entries are together."""
        return self._bytes_before[stop] - self._bytes_before[index]

    def append(
        self,
        event: Mapping[str, Any],
        *,
        namespace: str | None = None,
        omit: Collection[str] = (),
    ) -> dict[str, Any]:
        """Write one change and return its token; `omit` names fields that the client never sees."""
        where = Namespace.parse(namespace) if namespace else _namespace(event.get("ns"))
        operation = str(event.get("operationType", ""))
        token = event.get("_id")
        time = self._stamp(event.get("clusterTime"), token)
        if token is None:
            token = event_token(
                time,
                self._index_in_time,
                str(where),
                self.end,
                from_invalidate=operation == "invalidate",
            )
        shown = {"_id": token, "operationType": operation, "clusterTime": time, **event}
        for name in (*omit, *(() if operation else ("operationType",))):
            shown.pop(name, None)
        if "to" in shown:  # mongod puts the new name of a collection before everything else
            shown = {"to": shown["to"], **shown}
        raw_token = bson.encode(token)
        raw = wire.in_order(shown) if "to" in shown else bson.encode(shown)
        entry = Entry(raw, raw_token, time, operation, where, _namespace(event.get("to")))
        self._write(entry, of_invalidate=operation == "invalidate")
        self.wake()
        return dict(token)

    def append_raw(self, events: Iterable[bytes], namespace: str | None) -> None:
        """Write encoded changes as they are; each begins with its `_id`, none ends a stream."""
        where = Namespace.parse(namespace) if namespace else None
        for raw in events:
            if raw[4:9] != b"\x03_id\x00":
                raise ValueError("a raw event must begin with its resume token, a document")
            token = raw[9 : 9 + int.from_bytes(raw[9:13], "little")]
            time = self._stamp(None, bson.decode(token))
            self._write(Entry(raw, token, time, "", where), of_invalidate=False)
        self.wake()

    def noop(self, seconds: int) -> None:
        """Let time pass without a change; 0 is the next increment."""
        if seconds:
            self.now = Timestamp(self.now.time + seconds, 1)
        else:
            self.now = self.next_time

    def truncate(self, keep: int) -> None:
        """Forget all but the last `keep` entries, as an oplog that has rolled over."""
        self.first_index = max(self.first_index, self.end - keep)
        if self.first_index < self.end:
            self.first_time = self.entries[self.first_index].time
        else:
            self.noop(0)
            self.first_time = self.now

    @property
    def next_time(self) -> Timestamp:
        """The time of the next entry unless it brings its own."""
        return Timestamp(self.now.time, self.now.inc + 1)

    def place_of_token(self, token: Mapping[str, Any]) -> Place:
        """Where a stream goes on behind `token`; 280 when the oplog never wrote such a token."""
        place = self._places.get(bson.encode(token))
        if place is None and is_high_water(token):
            place = self.place_of_time(token_time(token) or self.now)
        if place is None:
            time = token_time(token)
            if time is not None and time < self.first_time:
                return Place(-1)
            raise ServerError(280, "cannot resume stream; the resume token was not found")
        if place.source is not None and place.source.time < self.first_time:
            return Place(-1)
        return place

    def place_of_time(self, time: Timestamp) -> Place:
        """The place before the first entry at or after `time`; index -1 when that is lost."""
        if time < self.first_time:
            return Place(-1)
        return Place(bisect.bisect_left(self._order, _ordinal(time), self.first_index))

    def is_lost(self, index: int) -> bool:
        """Whether the entry at `index` may have existed and is gone."""
        return index < self.first_index

    def remember_invalidate(self, token: bytes, index: int, source: Entry) -> None:
        """Make a generated invalidate's token known, so that `startAfter` finds it."""
        self._places[token] = Place(index, source, of_invalidate=True)

    def wake(self) -> None:
        """Let every reader that waits look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def _stamp(self, given: Timestamp | None, token: Mapping[str, Any] | None) -> Timestamp:
        if given is not None and given < self.now:
            raise ValueError(
                f"clusterTime {given} lies before the oplog's {self.now}: "
                "begin with an earlier start_seconds"
            )
        own = token_time(token) if token is not None else None
        time = given or (own if own is not None and own >= self.now else self.next_time)
        previous = self.entries[-1].time if self.entries else None
        self._index_in_time = self._index_in_time + 1 if time == previous else 0
        self.now = time
        return time

    def _write(self, entry: Entry, *, of_invalidate: bool) -> None:
        last = self.entries[-1] if self.entries else None
        alike = last is not None and last.is_ordinary and last.namespace == entry.namespace
        if not (alike and entry.is_ordinary):
            self._runs.append(self.end)
        self._bytes_before.append(self._bytes_before[-1] + len(entry.raw))
        self.entries.append(entry)
        self._order.append(_ordinal(entry.time))
        self._places[entry.token] = Place(self.end, entry, of_invalidate)


def encoded_high_water(time: Timestamp) -> bytes:
    """A high-water mark as BSON."""
    return bson.encode(high_water_token(time))


def live_collections(entries: Iterable[Entry], database: str) -> list[str]:
    """The collections of a database that the entries wrote to and did not drop, sorted."""
    alive: set[str] = set()
    for entry in entries:
        to, where = entry.renamed_to, entry.namespace
        if where is not None and where.database == database:
            if entry.operation == "dropDatabase":
                alive.clear()
            elif where.collection is None:
                continue
            elif entry.operation in ("drop", "rename"):
                alive.discard(where.collection)
            elif entry.operation != "invalidate":
                alive.add(where.collection)
        if to is not None and to.database == database and to.collection is not None:
            alive.add(to.collection)
    return sorted(alive)


def _namespace(document: Any) -> Namespace | None:
    if not isinstance(document, Mapping) or "db" not in document:
        return None
    return Namespace(document["db"], document.get("coll"))


def _ordinal(time: Timestamp) -> int:
    return (time.time << 32) | time.inc
