"""Finds the last changes of a document on the server, by a change stream of its own.

Unlike a query of the oplog, this needs no further role, works on a sharded cluster and in
transactions, and gives the events with the tokens that the scope's stream has. The search goes back
by ever longer spans, because a stream is only read forwards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, DriverError, StreamError, describe
from tailrace.event import ChangeEvent
from tailrace.event.key import Key
from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions, CommandRunner, Driver
from tailrace.stream.server_clock import oplog_time, server_time

_SPANS = (60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 365 * 24 * 3600)
"""How many seconds the search goes back, one after another, until it finds a change."""
_KEPT = {"_id": 1, "operationType": 1, "ns": 1, "documentKey": 1, "clusterTime": 1, "to": 1}
_HISTORY_LOST = (286, 280, 136)
"""ChangeStreamHistoryLost, ChangeStreamFatalError, CappedPositionLost: the oplog does not reach
back so far."""


class Server(Driver, CommandRunner, Protocol):
    """What an inquiry asks of the server."""


@dataclass(frozen=True, slots=True)
class FoundChanges:
    """The changes since a time, oldest first. ``passed``: the digests of those that the scope's
    pipeline lets through. ``whole``: the search reached back as far as the oplog."""

    now: Timestamp | None = None
    since: Timestamp | None = None
    events: Sequence[ChangeEvent] = ()
    passed: frozenset[str] = frozenset()
    whole: bool = False
    unknown: Sequence[str] = field(default=())


async def find_changes(
    server: Server,
    scope: Scope,
    options: ChangeStreamOptions,
    key: Key,
    collection: tuple[str, str] | None,
    seconds: float,
) -> FoundChanges:
    """Searches for at most ``seconds``. ``collection``: database and collection, if only one."""
    match: dict[str, Any] = {"documentKey._id": {"$eq": key.value}}
    if collection is not None:
        match["ns"] = {"db": collection[0], "coll": collection[1]}
    return await find_changes_of(server, scope, options, match, seconds)


async def find_changes_of(
    server: Server,
    scope: Scope,
    options: ChangeStreamOptions,
    match: Mapping[str, Any],
    seconds: float,
    is_enough: Callable[[Sequence[ChangeEvent]], bool] = bool,
) -> FoundChanges:
    """The same of all events that ``match``, back to where those found are enough."""
    search = _Search(server, scope, options, match, is_enough)
    changes = FoundChanges()
    with anyio.move_on_after(seconds) as bounded:
        try:
            changes = await search.back(changes)
        except (DriverError, StreamError) as error:
            message = f"The server did not tell the changes: {describe(error)}."
            changes = replace(search.found, unknown=[message])
    if bounded.cancelled_caught:
        changes = search.found
    if not changes.whole and not changes.unknown:
        message = (
            "The server did not answer in time."
            if changes.now is None
            else "Changes before that are not searched: the time was up. Ask with more --seconds."
            if bounded.cancelled_caught
            else "Earlier changes are not searched: these are the last ones."
        )
        changes = replace(changes, unknown=[message])
    return changes


@dataclass(slots=True)
class _Search:
    server: Server
    scope: Scope
    options: ChangeStreamOptions
    match: Mapping[str, Any]
    is_enough: Callable[[Sequence[ChangeEvent]], bool]
    found: FoundChanges = field(default_factory=FoundChanges)
    """What is known so far, if the time is up."""

    async def back(self, changes: FoundChanges) -> FoundChanges:
        if (now := await server_time(self.server)) is None:
            return replace(changes, unknown=["The server does not tell its time."])
        self.found = replace(changes, now=now)
        oldest = await self._oldest()
        for span in _SPANS:
            since = Timestamp(max(now.time - span, 1), 1)
            whole = oldest is not None and since <= oldest
            if oldest is not None and whole:
                since = Timestamp(oldest.time, oldest.inc + 1)
            try:
                events = await self._events(since, now, (self._match, {"$project": _KEPT}))
            except CommandFailed as error:
                if error.code not in _HISTORY_LOST:
                    raise
                return replace(self.found, whole=True)
            passed = events
            if events and self.options.pipeline:
                stages = (self._match, *self.options.pipeline, {"$project": {"_id": 1}})
                passed = await self._events(since, now, stages)
            digests = frozenset(event.token.digest for event in passed)
            self.found = FoundChanges(now, since, events, digests, whole)
            if whole or self.is_enough(events):
                break
        return self.found

    @property
    def _match(self) -> Mapping[str, Any]:
        return {"$match": self.match}

    async def _oldest(self) -> Timestamp | None:
        """The time of the oldest entry of the oplog; ``None`` if this user may not ask."""
        try:
            return await oplog_time(self.server)
        except CommandFailed:
            return None

    async def _events(
        self, since: Timestamp, until: Timestamp, stages: tuple[Mapping[str, Any], ...]
    ) -> list[ChangeEvent]:
        """The events of a stream up to a time."""
        options = ChangeStreamOptions(
            pipeline=stages,
            show_expanded_events=self.options.show_expanded_events,
            collation=self.options.collation,
            comment="tailrace why",
            read_preference=self.options.read_preference,
        )
        events: list[ChangeEvent] = []
        start = StartPoint(at_operation_time=since)
        async with ChangeStream(self.server, self.scope, options, start) as stream:
            while True:
                batch = await stream.next_batch(wait=False)
                events += batch.events()
                reached = batch.token.cluster_time if batch.token is not None else None
                if stream.invalidated or (reached is not None and reached >= until):
                    return events
