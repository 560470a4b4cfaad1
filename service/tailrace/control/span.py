"""A span of time of one scope: which changes are meant, read with a stream of their own."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.control.bodies import ReplayBody
from tailrace.control.outcome import ActionRefused
from tailrace.control.server_positions import (
    ServerPositions,
    end_of_second,
    moment,
    read_time,
)
from tailrace.event import ChangeEvent, RawBatch
from tailrace.model import Position, PositionKind, Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver, LookupStream
from tailrace.why.key import Key, read_key

Take = Callable[[Sequence[ChangeEvent]], Awaitable[None]]
"""Takes some changes of a span, in the order of the stream."""


async def find_span(server: ServerPositions, body: ReplayBody) -> "Span":
    """The span that is meant, which the server still has. Raises :class:`ActionRefused`."""
    scope = server.scope
    for each in body.collections:
        _require_collection(scope, each)
    try:
        keys = tuple(read_key(each) for each in body.keys)
    except ValueError as error:
        raise ActionRefused(400, f"keys: {error}") from error
    since = read_time(body.since or "", "from")
    to = read_time(body.to, "to") if body.to is not None else None
    kept = await server.kept()
    kept.require(since, body.since or "", "from")
    until = kept.now
    if to is not None:
        kept.require(to, body.to or "", "to")
        until = min(until, end_of_second(to))
    if since > until:
        message = f"the span ends at {moment(until)}, before it begins"
        raise ActionRefused(422, f"{message}: give a from that is not after to")
    await server.require(Position(PositionKind.IDLE, None, None, since))
    return Span(scope, server.options, since, until, tuple(body.collections), keys)


def _require_collection(scope: Scope, name: str) -> None:
    """A scope of several collections may have had any that the server does not have now."""
    if scope.collection is None and name:
        return
    if name not in (scope.collection, f"{scope.database}.{scope.collection}"):
        message = f"scope {scope.name!r} does not have the collection {name!a:.60}"
        raise ActionRefused(422, f"{message}: it has {scope.collection or scope.database or 'all'}")


@dataclass(frozen=True, slots=True)
class Span:
    """The changes from ``since`` up to ``until`` that the scope's pipeline lets through.

    Only those of ``collections``, each ``name`` or ``database.name``, and of the documents with
    these ``keys``; of all, where there are none.
    """

    scope: Scope
    options: ChangeStreamOptions
    since: Timestamp
    until: Timestamp
    collections: Sequence[str] = ()
    keys: Sequence[Key] = ()

    def __str__(self) -> str:
        of = f" of {', '.join(self.collections)}" if self.collections else ""
        keys = f" with the _id {', '.join(each.text for each in self.keys)}" if self.keys else ""
        return f"changes{of}{keys} from {moment(self.since)} to {moment(self.until)}"

    async def read(self, driver: Driver, most_bytes: int, take: Take) -> None:
        """Gives the changes to ``take``, a reply of the server at a time.

        ``most_bytes``: the most that look-ups may hold. Raises :class:`TailraceError`.
        """
        start: StartPoint | None = StartPoint(at_operation_time=self.since)
        while start is not None:
            start = await self._follow(start, driver, most_bytes, take)

    async def _follow(
        self, start: StartPoint, driver: Driver, most_bytes: int, take: Take
    ) -> StartPoint | None:
        """Reads one stream; returns where the next one starts, after an invalidate event."""
        options = replace(self.options, pipeline=(*self._match, *self.options.pipeline))
        inner = ChangeStream(driver, self.scope, options, start)
        stream: ChangeStream | LookupStream = inner
        if options.looks_up:
            stream = LookupStream(
                inner,
                driver,
                read_preference=options.read_preference,
                by_uuid=options.match_collection_uuid_for_update_lookup is not False,
                most_bytes=most_bytes,
            )

        async def read(stream: ChangeStream | LookupStream) -> None:
            opening = True
            while True:
                batch = await stream.next_batch()
                if events := self._of(batch):
                    await take(events)
                if inner.invalidated or self._over(batch, opening=opening):
                    return
                opening = False

        await stream.open()
        try:
            if isinstance(stream, LookupStream):
                await stream.reading(read)
            else:
                await read(stream)
        finally:
            with anyio.move_on_after(2, shield=True):
                await stream.aclose()
        token = inner.resume_token
        if not inner.invalidated or token is None:
            return None
        over = token.cluster_time is not None and token.cluster_time > self.until
        return None if over else StartPoint(start_after=token)

    @property
    def _match(self) -> Sequence[dict[str, Any]]:
        """Lets the server leave out other documents. Its comparison may find more: a collation."""
        if not self.keys:
            return ()
        of_keys = [{"documentKey._id": {"$eq": each.value}} for each in self.keys]
        return ({"$match": {"$or": [*of_keys, {"operationType": "invalidate"}]}},)

    def _of(self, batch: RawBatch) -> Sequence[ChangeEvent]:
        return [
            event
            for event in batch.events()
            if (event.cluster_time is None or event.cluster_time <= self.until) and self.has(event)
        ]

    def has(self, event: ChangeEvent) -> bool:
        """Whether a change is one of the collections and documents of the span."""
        if self.keys and not any(each.is_of(event.key) for each in self.keys):
            return False
        if not self.collections:
            return True
        ns = event.ns
        return ns is not None and (ns.coll in self.collections or str(ns) in self.collections)

    def _over(self, batch: RawBatch, *, opening: bool) -> bool:
        """Whether the stream has passed the end of the span.

        Several changes may have its time: then the next reply has none. The reply to the opening
        has none either, with the time at which the stream starts.
        """
        time = batch.token.cluster_time if batch.token is not None else None
        if time is None or time < self.until:
            return False
        return time > self.until or (batch.last is None and not opening)
