"""A change stream that looks up the documents of its updates, one reply at a time.

The server's own ``updateLookup`` makes one query per event. Here the stream opens without it, and
one ``find`` per collection of a reply asks for all documents of that collection, each only once.
The promise is the same: a document is majority-committed and not older than the change (the find is
``afterClusterTime`` of the reply's last event), and null if it is gone.

While documents are looked up, the next reply is read. If its documents are large, a reply is
returned in parts, so that no more than a reply's bytes of documents are in memory at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from bson.timestamp import Timestamp

from tailrace.errors import DriverError, StreamInterrupted, describe
from tailrace.event import RawBatch, Slice
from tailrace.event import lookup as events
from tailrace.event.reply import Reply
from tailrace.event.wanted_documents import MOST_KEYS, WantedDocuments
from tailrace.model import ResumeToken
from tailrace.stream.change_stream import ChangeStream
from tailrace.stream.driver_port import Driver, LookUp
from tailrace.stream.interrupt import Interrupt
from tailrace.stream.resumable import is_retryable

T = TypeVar("T")

MOST_BYTES = 16 * 1024 * 1024
"""The limit of a part's events with their documents, and of the documents looked up at once."""
_KEY_BYTES = 4 * 1024 * 1024
_LARGE_REPLY_BYTES = 4 * 1024 * 1024
"""While the documents of a reply of this size are looked up, no other reply is read."""
_SMALL_REPLY_BYTES, _SLOW_SECONDS = 65536, 0.005
"""While the documents of a small reply are looked up, no other reply is read either: sending
another command would delay the documents. After a look-up slower than this, the delay is small in
comparison, and the next reply is read."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One reply, and the position of the stream after it."""

    batch: RawBatch
    token: ResumeToken | None
    invalidated: bool
    operations: Mapping[str, int]


@dataclass(slots=True)
class _PrefetchedReply:
    """The next reply, while it is read and until it is used."""

    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: _Read | Exception | None = None


class LookupStream:
    """A change stream with the methods of :class:`ChangeStream`, read inside :meth:`reading`.

    ``by_uuid``: if another collection has the name now, the document counts as gone. A part has at
    most ``most_bytes``, or one event. ``may_prefetch`` tells whether the next reply may be read
    before the caller asks for it.
    """

    def __init__(
        self,
        stream: ChangeStream,
        driver: Driver,
        *,
        read_preference: str | None = None,
        by_uuid: bool = True,
        most_bytes: int = MOST_BYTES,
        may_prefetch: Callable[[], bool] = lambda: True,
        interrupt: Interrupt | None = None,
    ) -> None:
        self.invalidated = False
        self.resume_token = stream.resume_token
        self._stream = stream
        self._driver = driver
        self._read_preference = read_preference
        self._by_uuid = by_uuid
        self._most_bytes = min(most_bytes, MOST_BYTES)
        self._may_prefetch = may_prefetch
        self._interrupt = interrupt or Interrupt()
        self._tasks: TaskGroup | None = None
        self._prefetched: _PrefetchedReply | None = None
        self._unfilled: _Read | None = None
        self._window = events.LookupWindow(0, 0)
        self._most_keys = MOST_KEYS
        self._look_up_seconds = 0.0  # how long the last one took

    async def open(self) -> None:
        """Runs the first aggregate; closes the stream if it fails."""
        await self._stream.open()

    async def aclose(self) -> None:
        """Kills the cursor and ends the session. May be called more than once."""
        await self._stream.aclose()

    async def reading(self, call: Callable[[LookupStream], Awaitable[T]]) -> T:
        """Awaits ``call``, which reads this stream, and then a reply that is still prefetched.

        If ``call`` raises, this raises the same error and stops prefetching.
        """
        async with anyio.create_task_group() as self._tasks:
            try:
                return await call(self)
            except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
                failure = error
                self._tasks.cancel_scope.cancel()
        raise failure

    async def next_batch(self, *, wait: bool = True) -> RawBatch:
        """One reply, or a part of one, as :meth:`ChangeStream.next_batch`.

        Also raises :class:`DriverError` for failed look-ups, after a second attempt if that may
        help, and :class:`StreamInterrupted` if a stop came before their answer.
        """
        read = self._unfilled
        if read is None:
            read = await self._next_read(wait)
            if not read.operations.get(events.UPDATE):
                return self._returned(read, read.batch)
            self._unfilled, self._window = read, events.LookupWindow(0, 0)
            self._prefetch(read)
        return await self._part(read)

    async def _part(self, read: _Read) -> RawBatch:
        """The next events of a reply with their documents."""
        batch, window = read.batch, self._window
        first = window.first
        if first == window.end:
            window = self._window = await self._look_up(batch, first)
        buffer, bounds = events.fill(batch.buffer, batch.bounds, window, self._most_bytes)
        end = window.first
        token, counts = batch.token, batch.counts
        if end == len(batch):
            self._unfilled = None
        else:
            token = Slice(buffer, bounds).last().token
            read = replace(read, token=token, invalidated=False)
        if first or end < len(batch):
            alone = read.operations.keys() == {events.UPDATE}
            counts = {events.UPDATE: end - first} if alone else None
        return self._returned(read, RawBatch(buffer, bounds, token, batch.operation_time, counts))

    def _returned(self, read: _Read, batch: RawBatch) -> RawBatch:
        self.resume_token, self.invalidated = read.token, read.invalidated
        return batch

    # --- replies ---------------------------------------------------------------------------

    async def _next_read(self, wait: bool) -> _Read:
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is None:
            return await self._read(wait)
        await prefetched.done.wait()
        if isinstance(prefetched.outcome, Exception):
            raise prefetched.outcome
        assert prefetched.outcome is not None  # noqa: S101 - for the type checker: it is done
        return prefetched.outcome

    def _prefetch(self, read: _Read) -> None:
        size = read.batch.size
        if self._tasks is None or size >= _LARGE_REPLY_BYTES:
            return
        if size < _SMALL_REPLY_BYTES and self._look_up_seconds < _SLOW_SECONDS:
            return
        if self._may_prefetch():
            self._prefetched = prefetched = _PrefetchedReply()
            self._tasks.start_soon(self._read_into, prefetched, name="the next reply")

    async def _read_into(self, prefetched: _PrefetchedReply) -> None:
        try:
            prefetched.outcome = await self._read(wait=True)
        except Exception as error:  # noqa: BLE001 - raised when the caller asks for that reply
            prefetched.outcome = error
        prefetched.done.set()

    async def _read(self, wait: bool) -> _Read:
        batch = await self._stream.next_batch(wait=wait)
        stream = self._stream
        return _Read(batch, stream.resume_token, stream.invalidated, batch.operations())

    # --- documents -------------------------------------------------------------------------

    async def _look_up(self, batch: RawBatch, first: int) -> events.LookupWindow:
        """Looks up documents; returns the next events of a reply that have their documents now."""
        last = batch.last
        since = (last and last.time) or batch.operation_time
        began = anyio.current_time()
        while True:
            window = events.window(batch.buffer, batch.bounds, first, self._most_keys, _KEY_BYTES)
            if await self._find_all(window, since):
                self._look_up_seconds = anyio.current_time() - began
                return window

    async def _find_all(self, window: events.LookupWindow, since: Timestamp | None) -> bool:
        """Finds the documents of a window; returns False if they are too many at once."""
        keys = sum(len(wanted.keys) for wanted in window.wanted.values())
        size = count = 0
        for collection, wanted in window.wanted.items():
            if not wanted.keys:
                continue  # the window was full before the first key of this collection
            reply = await self._find(collection, wanted, since)
            size, count = size + len(reply.buffer), count + len(reply)
            if keys > 1 and (reply.cursor_id or size > MOST_BYTES):
                fit = self._most_bytes * len(reply) // len(reply.buffer)
                self._most_keys = max(min(keys // 2, fit), 1)
                return False
            wanted.found(reply)
            size += await self._find_otherwise(collection, wanted, since)
            if keys > 1 and size > MOST_BYTES:
                self._most_keys = keys // 2
                return False
        fit = self._most_bytes * max(count, 1) // max(size, 1)
        self._most_keys = max(min(2 * self._most_keys, fit, MOST_KEYS), 1)
        return True

    async def _find_otherwise(
        self, collection: events.Collection, wanted: WantedDocuments, since: Timestamp | None
    ) -> int:
        """Finds documents that only the collection's collation makes equal; returns their bytes.

        Usually there is none, which one query tells. Otherwise each key is asked for alone, as only
        the server knows which of them a document equals.
        """
        missing = wanted.spelled_otherwise()
        together = WantedDocuments({n: each.keys[n] for n, each in missing.items()}, plain=False)
        if not missing or not len(await self._find(collection, together, since, most=0)):
            return 0
        size = 0
        for name, key in missing.items():
            reply = await self._find(collection, key, since)
            if len(reply):
                begin, end = reply.bounds[:2]
                wanted.documents[name] = reply.buffer[begin:end]
                size += end - begin
        return size

    async def _find(
        self,
        collection: events.Collection,
        keys: WantedDocuments,
        since: Timestamp | None,
        *,
        most: int | None = None,
    ) -> Reply:
        wanted = LookUp(
            collection.database,
            collection.name,
            collection.uuid if self._by_uuid else None,
            keys.filter(),
            keys.most if most is None else most,
            since,
            self._read_preference,
        )
        try:
            try:
                return await self._answer(wanted)
            except DriverError as error:
                if not is_retryable(error):
                    raise
                self._stream.activity.errors.note(describe(error))
                return await self._answer(wanted)
        except DriverError as error:
            what = f"{collection.database}.{collection.name}"
            error.args = (f"documents of {what} cannot be looked up: {error.args[0]}",)
            raise

    async def _answer(self, wanted: LookUp) -> Reply:
        with self._interrupt.interrupts() as scope:
            found = await self._driver.look_up(wanted)
        if scope.cancelled_caught:
            name = self._stream.scope.name
            raise StreamInterrupted(f"scope {name!r}: stopped while documents were looked up")
        self._stream.activity.answered(None)
        return found
