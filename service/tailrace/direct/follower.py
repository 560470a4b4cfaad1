"""Reads one scope from an offset to the next, each time with a stream of its own.

Before it stands the change stream, which resumes; behind it Spark, which calls once a trigger and
keeps the position. Nothing is held open in between: what is read depends on the offset alone, in
the driver's process as in an executor's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import anyio
from bson.timestamp import Timestamp

from tailrace.direct.offset import Offset
from tailrace.direct.options import Following
from tailrace.drivers import DRIVERS, identify
from tailrace.engine.error_policy import HISTORY_LOST, judge
from tailrace.errors import (
    ConfigurationError,
    ScopeHalted,
    StartRefused,
    StreamError,
    TailraceError,
)
from tailrace.event import Batch
from tailrace.model import ResumeToken, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.start import NOW
from tailrace.stream import ChangeStream, fingerprint


@dataclass(frozen=True, slots=True)
class Taken:
    """Events, where the stream stands behind them, and whether that was all there was."""

    events: list[bytes]
    end: Offset
    reached: bool


class Follower:
    """Reads a scope. Raises :class:`StartRefused` where the server cannot be followed,
    :class:`ScopeHalted` where no repetition helps, :class:`StreamError` where one may."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._fingerprint = fingerprint(following.scope, following.stream)
        self._cluster: ClusterIdentity | None = None

    def now(self) -> Timestamp:
        """The cluster's time: everything up to it has happened."""
        return anyio.run(self._now)

    def take(self, start: Offset, until: Timestamp | None = None) -> Taken:
        """What is there behind ``start``, within the limits of a trigger.

        Waits up to ``maxAwaitTimeMS`` for a first event. With ``until`` it waits for as long as it
        takes to know that there is nothing else up to that time, and returns nothing later.
        """
        return anyio.run(self._take, start, until)

    def again(self, start: Offset, end: Offset) -> list[bytes]:
        """The very events between two offsets, of which ``end`` came from :meth:`take`."""
        return anyio.run(self._again, start, end)

    async def _now(self) -> Timestamp:
        following = self._following
        with self._explained("now"):
            await self._identified()
            async with DRIVERS[following.driver](following.uri, 1) as driver:
                time = (await driver.run("admin", {"ping": 1})).get("operationTime")
        if not isinstance(time, Timestamp):
            raise StartRefused(f"{self._name}: the server does not tell its cluster time")
        return time

    async def _take(self, start: Offset, until: Timestamp | None) -> Taken:
        if start.invalidated and self._following.stop_on_invalidate:
            return Taken([], start, reached=True)
        async with self._stream(start) as stream:
            batch = await stream.next_batch()
            taking = _Taking(self._following, self._marked(start))
            if start.start == NOW:
                # The position is all that is wanted: Spark keeps it, and goes on from there.
                return taking.placed(batch)
            goal, first = until or batch.operation_time, True
            while True:
                taking.add(batch, until, invalidated=stream.invalidated)
                if taking.full:
                    return taking.done(reached=False)
                if _beyond(batch, goal):
                    return taking.done(reached=True)
                if stream.invalidated:
                    return taking.done(reached=False)
                if not len(batch) and batch.token is not None:
                    reached = _caught_up(batch, goal, first=first)
                    if reached or (until is None and not first):
                        return taking.done(reached=reached)
                batch, first = await stream.next_batch(), False

    async def _again(self, start: Offset, end: Offset) -> list[bytes]:
        count = end.ordinal - start.ordinal
        events: list[bytes] = []
        if count <= 0:
            return events
        async with self._stream(start) as stream:
            batch = await stream.next_batch()
            goal, first = batch.operation_time, True
            while True:
                wanted = count - len(events)
                events += batch.part(0, wanted).raw()
                if len(events) == count:
                    last = _token_of(batch, wanted)
                    if last is not None and last.digest == end.event:
                        return events
                    break
                if stream.invalidated or (not len(batch) and _caught_up(batch, goal, first=first)):
                    break
                batch, first = await stream.next_batch(), False
        raise ScopeHalted(
            f"{self._name}: a batch of {count} events cannot be read again, for the server sends "
            f"other events now (a pipeline that looks at looked-up documents?). {_ANEW}"
        )

    @asynccontextmanager
    async def _stream(self, start: Offset) -> AsyncIterator[ChangeStream]:
        """A stream that begins at an offset, once that is known to be of this scope and cluster."""
        following = self._following
        with self._explained(str(start.start)):
            self._require_own(start, await self._identified())
            async with (
                DRIVERS[following.driver](following.uri, 1) as driver,
                ChangeStream(driver, following.scope, following.stream, start.start) as stream,
            ):
                yield stream

    async def _identified(self) -> ClusterIdentity:
        if self._cluster is None:
            following = self._following
            self._cluster = await identify(
                DRIVERS[following.driver], following.uri, following.connect_timeout_seconds
            )
        return self._cluster

    def _require_own(self, start: Offset, cluster: ClusterIdentity) -> None:
        if start.fingerprint not in ("", self._fingerprint):
            raise ScopeHalted(
                f"{self._name}: its pipeline or options changed since the query's checkpoint, "
                f"whose token is not valid with the new ones. Restore them. {_ANEW}"
            )
        if start.cluster and not ClusterIdentity.parse(start.cluster).may_be(cluster):
            raise ScopeHalted(
                f"{self._name}: the query's checkpoint belongs to the cluster {start.cluster}, "
                f"and uri leads to {cluster}. Correct it. {_ANEW}"
            )

    def _marked(self, start: Offset) -> Offset:
        """With what its token is good for."""
        return replace(start, cluster=str(self._cluster), fingerprint=self._fingerprint)

    @property
    def _name(self) -> str:
        scope = self._following.scope
        return f"scope {scope.name!r} ({scope})"

    @contextmanager
    def _explained(self, start: str) -> Iterator[None]:
        """One error that names the scope and says what to do."""
        try:
            yield
        except StartRefused as error:
            raise StartRefused(f"{self._name}: {error}") from error
        except (ConfigurationError, ScopeHalted):
            raise
        except TailraceError as error:
            verdict = judge(error, self._following.scope.name)
            if verdict.reason == HISTORY_LOST:
                raise ScopeHalted(
                    f"{self._name}: the server cannot begin with {start}: {error}. Changes since "
                    f"then may be lost. {_ANEW}"
                ) from error
            if verdict.halt:
                raise ScopeHalted(f"{self._name}: {verdict.message}") from error
            raise StreamError(
                f"{self._name}: {verdict.message}. Start the query again: it goes on from its "
                "checkpoint"
            ) from error


_ANEW = "Or begin anew: with another checkpointLocation, and startAt where you want to begin"


class _Taking:
    """Collects what a trigger takes."""

    def __init__(self, following: Following, start: Offset) -> None:
        self._limits = following.limits
        self._start = self._end = start
        self._events: list[bytes] = []
        self._bytes = 0
        self.full = False
        """Whether the trigger has its share."""

    def add(self, batch: Batch, until: Timestamp | None, *, invalidated: bool) -> None:
        """Takes of a reply what there is room for, and nothing after ``until``.

        ``invalidated`` is whether the stream has ended with it.
        """
        count = self._share(batch, until)
        if count:
            part = batch.part(0, count)
            self._events += part.raw()
            self._bytes += part.size
        last = _token_of(batch, count)
        if last is not None:
            ordinal = self._start.ordinal + len(self._events)
            self._end = replace(self._end, ordinal=ordinal, event=last.digest)
        if count < len(batch):
            self._move(last)
            return
        self._move(last if batch.invalidates else batch.token or last)
        if invalidated:
            self._end = replace(self._end, invalidated=True)

    def placed(self, batch: Batch) -> Taken:
        """Where a stream without a start begins: behind what it has answered so far."""
        if batch.token is not None:
            self._move(batch.token)
        else:
            start = StartPoint(at_operation_time=batch.operation_time)
            self._end = replace(self._end, start=start)
        return self.done(reached=False)

    def done(self, *, reached: bool) -> Taken:
        """What was taken."""
        return Taken(self._events, self._end, reached)

    def _share(self, batch: Batch, until: Timestamp | None) -> int:
        limits, bounds = self._limits, batch.bounds
        count = min(len(batch), limits.max_events_per_trigger - len(self._events))
        room = limits.max_bytes_per_trigger - self._bytes
        while count > (0 if self._events else 1) and bounds[2 * count - 1] - bounds[0] > room:
            count -= 1
        if _beyond(batch, until):
            times = (event.cluster_time for event in batch.events())
            later = next(index for index, time in enumerate(times) if _later(time, until))
            if later <= count:
                return later
        self.full = count < len(batch) or len(self._events) + count == limits.max_events_per_trigger
        return count

    def _move(self, token: ResumeToken | None) -> None:
        """Goes on to a token, but never back: a first post-batch token may lie before the start."""
        if token is None:
            return
        since, time = self._end.start.cluster_time, token.cluster_time
        if since is None or time is None or not since > time:
            self._end = replace(self._end, start=StartPoint(start_after=token), invalidated=False)


def _token_of(batch: Batch, count: int) -> ResumeToken | None:
    """The own token of the last of a reply's first ``count`` events."""
    return batch.part(0, count).last().token if count else None


def _beyond(batch: Batch, goal: Timestamp | None) -> bool:
    return batch.last is not None and _later(batch.last.cluster_time, goal)


def _later(time: Timestamp | None, goal: Timestamp | None) -> bool:
    return time is not None and goal is not None and time > goal


def _caught_up(batch: Batch, goal: Timestamp | None, *, first: bool) -> bool:
    """Whether an empty reply means that there is nothing up to ``goal``.

    Its token's time says so. Where that cannot be read, the server has looked at least once, but
    for the ``first`` reply, which stands where the stream begins: before the changes of its time.
    Without a token the reply was not empty: it had a part of an event.
    """
    if batch.token is None:
        return False
    time = batch.token.cluster_time
    if time is None or goal is None:
        return not first
    return time > goal if first else time >= goal
