"""Where questions are asked: a database of our own, and streams of its collections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bson.timestamp import Timestamp

from tailrace.compat.answer import Facts, NegativeAnswer
from tailrace.drivers import CommandDriver
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.stream import ChangeStream, ChangeStreamOptions

OPTIONS = ChangeStreamOptions(max_await_time_ms=200, read_preference="primary")
"""Those of a stream that a question opens. On the primary, as the writes that it waits for."""
MAJORITY = {"w": "majority"}


@dataclass(frozen=True, slots=True)
class Site:
    """``outsider`` opens a driver of the same server with a login that does not exist."""

    driver: CommandDriver
    outsider: Callable[[], CommandDriver]
    database: str
    identity: ClusterIdentity
    hello: Mapping[str, Any]
    options: ChangeStreamOptions = field(default=OPTIONS)

    @property
    def sharded(self) -> bool:
        """Whether the server is a mongos."""
        return self.hello.get("msg") == "isdbgrid"

    def scope(self, collection: str | None = None) -> Scope:
        """A scope of a collection, or of the whole database."""
        return Scope("compat", self.database, collection)

    async def run(self, **command: Any) -> dict[str, Any]:
        """Runs a command on the database."""
        return await self.driver.run(self.database, command)

    async def insert(self, collection: str, *documents: Mapping[str, Any]) -> Timestamp | None:
        """Inserts documents; returns the server's time after that."""
        reply = await self.run(insert=collection, documents=list(documents), writeConcern=MAJORITY)
        return _time(reply)

    async def update(self, collection: str, identity: Any, change: Any) -> Timestamp | None:
        """Updates or replaces a document."""
        updates = [{"q": {"_id": identity}, "u": change}]
        return _time(await self.run(update=collection, updates=updates, writeConcern=MAJORITY))

    async def delete(self, collection: str, identity: Any) -> None:
        """Removes a document."""
        deletes = [{"q": {"_id": identity}, "limit": 1}]
        await self.run(delete=collection, deletes=deletes, writeConcern=MAJORITY)

    @asynccontextmanager
    async def following(
        self,
        collection: str | None = None,
        start: StartPoint | None = None,
        **options: Any,
    ) -> AsyncIterator[ChangeStream]:
        """An open stream of the collection or database; ``options`` differ from :data:`OPTIONS`."""
        chosen = replace(self.options, **options)
        async with ChangeStream(self.driver, self.scope(collection), chosen, start) as stream:
            yield stream


async def read(stream: Any, count: int) -> list[ChangeEvent]:
    """At least so many events of documents; the question's time limit ends the wait.

    A stream of the database has the creation of collections, too, if the server shows it.
    """
    events: list[ChangeEvent] = []
    while len(events) < count:
        events += [each for each in (await stream.next_batch()).events() if each.document_key]
    return events


async def read_until(stream: Any, operation: str) -> list[ChangeEvent]:
    """The events up to the first one of this type."""
    events: list[ChangeEvent] = []
    while not any(event.operation_type == operation for event in events):
        events += (await stream.next_batch()).events()
    return events


def after(token: ResumeToken) -> StartPoint:
    """The start after an event."""
    return StartPoint(resume_after=token)


def ids(events: list[ChangeEvent]) -> list[Any]:
    """The ``_id`` of each event's document."""
    return [(event.document_key or {}).get("_id") for event in events]


def require(events: list[ChangeEvent], *wanted: Any) -> None:
    """Answers no if events of documents are missing, repeated or in another order."""
    if ids(events) != [*wanted]:
        facts = {"came": len(events), "wanted": len(wanted)}
        raise NegativeAnswer("the events are not those of the changes", facts)


def _time(reply: Mapping[str, Any]) -> Timestamp | None:
    time = reply.get("operationTime")
    return time if isinstance(time, Timestamp) else None


@dataclass(frozen=True, slots=True)
class Question:
    """An independent check. ``ask`` returns facts if the answer is yes, else it raises.

    ``needed_by``: the settings that need it; empty: every scope does. ``seconds``: the time limit
    if it is not the usual one.
    """

    name: str
    asks: str
    ask: Callable[[Site], Awaitable[Facts]]
    needed_by: str = ""
    seconds: float = 0.0
