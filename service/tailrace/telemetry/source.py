"""The source with spans: the replies of streams, look-ups, and chunks of snapshots."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import SpanKind, Tracer

from tailrace.event.reply import Reply
from tailrace.snapshot.server import Find, SnapshotServer
from tailrace.stream.driver_port import AtWork, Cursor, CursorRequest, Driver, LookUp, Session
from tailrace.telemetry.spans import Attributes, SpanSeries, command, fail

_ROWS = "db.response.returned_rows"


@dataclass(frozen=True, slots=True)
class TracedDriver:
    """Implements ``Driver``."""

    driver: Driver
    scope: str
    tracer: Tracer
    openings: SpanSeries
    look_ups: SpanSeries

    async def start_session(self) -> Session:
        session = await self.driver.start_session()
        return TracedSession(session, self.scope, self.tracer, self.openings)

    async def look_up(self, wanted: LookUp) -> Reply:
        name, attributes = command(
            self.scope, "look_up", "find", wanted.database, wanted.collection
        )
        with self.look_ups.current(name, attributes) as span:
            reply = await self.driver.look_up(wanted)
            span.set_attribute(_ROWS, len(reply))
            return reply


@dataclass(frozen=True, slots=True)
class TracedSession:
    """Implements ``Session``."""

    session: Session
    scope: str
    tracer: Tracer
    openings: SpanSeries

    async def open(self, request: CursorRequest, at_work: AtWork) -> Cursor:
        followed = request.aggregate.get("aggregate")
        collection = followed if isinstance(followed, str) else ""
        name, attributes = command(self.scope, "stream", "aggregate", request.database, collection)
        with self.openings.current(name, attributes) as span:
            cursor = await self.session.open(request, at_work)
            of_member = _server(cursor.member)
            span.set_attributes({_ROWS: len(cursor.first), **of_member})
        name, attributes = command(self.scope, "stream", "getMore", request.database, collection)
        replies = SpanSeries(self.tracer, SpanKind.CLIENT)
        return TracedCursor(cursor, name, {**attributes, **of_member}, replies)

    async def aclose(self) -> None:
        await self.session.aclose()


@dataclass(frozen=True, slots=True)
class TracedCursor:
    """Implements ``Cursor``. A read that waited for a change in vain has no span."""

    cursor: Cursor
    name: str
    attributes: Attributes
    replies: SpanSeries

    @property
    def first(self) -> Reply:
        return self.cursor.first

    @property
    def member(self) -> str:
        return self.cursor.member

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        began = time.time_ns()
        try:
            reply = await self.cursor.next_batch(await_ms, most)
        except Exception as error:
            span = self.replies.begin(self.name, self.attributes, began)
            fail(span, error)
            span.end()
            raise
        if reply.bounds and self.replies.allows():
            attributes = {**self.attributes, _ROWS: len(reply)}
            self.replies.begin(self.name, attributes, began).end()
        return reply

    def kill(self) -> None:
        self.cursor.kill()


@dataclass(frozen=True, slots=True)
class TracedServer:
    """Implements ``SnapshotServer``."""

    server: SnapshotServer
    scope: str
    chunks: SpanSeries

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        return await self.server.run(database, command)

    async def first_batch(self, database: str, command: Mapping[str, Any]) -> Reply:
        return await self.server.first_batch(database, command)

    async def find(self, find: Find) -> Sequence[Reply]:
        name, attributes = command(self.scope, "snapshot", "find", find.database, find.collection)
        with self.chunks.current(name, attributes) as span:
            replies = await self.server.find(find)
            span.set_attribute(_ROWS, sum(map(len, replies)))
            return replies


def _server(member: str) -> Attributes:
    """The address of a member as attributes; none if it is not known."""
    host, _, port = member.rpartition(":")
    if not host or not port.isdigit():
        return {}
    return {"server.address": host.strip("[]"), "server.port": int(port)}
