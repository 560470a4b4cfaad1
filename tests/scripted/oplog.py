"""The scripted oplog: entries in order, a logical clock, and positions by token or by time.

It belongs to the server's loop, so nothing here locks. Time advances only when an entry or a no-op
is written.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.timestamp import Timestamp

from tailrace.testing.tokens import event_token, high_water_token, is_high_water, token_time

from . import wire
from .errors import ServerError
from .scopes import Entry, Namespace


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a token: after the entry `index - 1`, and the entry that it came from."""

    index: int
    source: Entry | None = None
    of_invalidate: bool = False


class Oplog:
    """Appends changes, keeps the clock, finds positions; wakes readers that await `changed`."""

    def __init__(self, start_seconds: int) -> None:
        self.entries: list[Entry] = []
        self.now = Timestamp(start_seconds, 1)
        self.first_index = 0
        self.first_time = self.now
        self.changed = asyncio.Event()
        self._places: dict[bytes, Place] = {}
        self._index_in_time = 0

    @property
    def end(self) -> int:
        """The index after the last entry."""
        return len(self.entries)

    def append(
        self,
        event: Mapping[str, Any],
        *,
        namespace: str | None = None,
        omit: Collection[str] = (),
    ) -> dict[str, Any]:
        """Writes a change and returns its token; `omit` names fields that the client never sees."""
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
        if "to" in shown:  # mongod puts the new name of a collection before all other fields
            shown = {"to": shown["to"], **shown}
        raw_token = bson.encode(token)
        raw = wire.in_order(shown) if "to" in shown else bson.encode(shown)
        entry = Entry(raw, raw_token, time, operation, where, _namespace(event.get("to")))
        self._write(entry, of_invalidate=operation == "invalidate")
        self.wake()
        return dict(token)

    def append_raw(self, events: Iterable[bytes]) -> None:
        """Writes encoded changes as they are. Each begins with its `_id`; none ends a stream."""
        for raw in events:
            token = raw[9 : 9 + int.from_bytes(raw[9:13], "little")]
            time = self._stamp(None, bson.decode(token))
            self._write(Entry(raw, token, time, "", None), of_invalidate=False)
        self.wake()

    def noop(self, seconds: int) -> None:
        """Advances the time without a change; 0 means the next increment."""
        if seconds:
            self.now = Timestamp(self.now.time + seconds, 1)
        else:
            self.now = self.next_time

    def truncate(self) -> None:
        """Removes all entries, like an oplog that has rolled over."""
        self.first_index = self.end
        self.noop(0)
        self.first_time = self.now

    @property
    def next_time(self) -> Timestamp:
        """The time of the next entry that has no time of its own."""
        return Timestamp(self.now.time, self.now.inc + 1)

    def place_of_token(self, token: Mapping[str, Any]) -> Place:
        """The position after `token`; error 280 if the oplog never wrote such a token."""
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
        """The position before the first entry at or after `time`; index -1 if that is lost."""
        if time < self.first_time:
            return Place(-1)
        return Place(
            next((n for n, entry in enumerate(self.entries) if entry.time >= time), self.end)
        )

    def is_lost(self, index: int) -> bool:
        """Whether the oplog may have lost the entry at `index`."""
        return index < self.first_index

    def remember_invalidate(self, token: bytes, index: int, source: Entry) -> None:
        """Records a generated invalidate's token, so that `startAfter` finds it."""
        self._places[token] = Place(index, source, of_invalidate=True)

    def wake(self) -> None:
        """Makes every waiting reader look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def _stamp(self, given: Timestamp | None, token: Mapping[str, Any] | None) -> Timestamp:
        """Sets the clock to the change's time: its own, that of its token, or the next one."""
        own = token_time(token) if token is not None else None
        time = given or (own if own is not None and own >= self.now else self.next_time)
        previous = self.entries[-1].time if self.entries else None
        self._index_in_time = self._index_in_time + 1 if time == previous else 0
        self.now = time
        return time

    def _write(self, entry: Entry, *, of_invalidate: bool) -> None:
        self._places[entry.token] = Place(self.end + 1, entry, of_invalidate)
        self.entries.append(entry)


def encoded_high_water(time: Timestamp) -> bytes:
    """A high-water mark as BSON."""
    return bson.encode(high_water_token(time))


def _namespace(document: Any) -> Namespace | None:
    if not isinstance(document, Mapping) or "db" not in document:
        return None
    return Namespace(document["db"], document.get("coll"))
