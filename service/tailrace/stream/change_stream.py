"""One resumable change stream: the driver specification as one small state machine.

The stream resumes once after each resumable error of a ``getMore``. It raises all other errors:
those of an aggregate (the first one or a resume's), non-resumable errors, an unexpected end.
"""

from __future__ import annotations

from dataclasses import replace

import anyio

from tailrace.errors import DriverError, MissingResumeToken, StreamEnded, StreamInterrupted
from tailrace.event import RawBatch
from tailrace.event.reply import Reply
from tailrace.event.survey import survey
from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.model.failure_policy import Backoff
from tailrace.stream.activity import StreamActivity
from tailrace.stream.aggregate import ChangeStreamOptions, request
from tailrace.stream.driver_port import Cursor, Driver, Session
from tailrace.stream.fragments import Joiner
from tailrace.stream.interrupt import Interrupt
from tailrace.stream.resumable import ResumePosition, is_resumable

_LOOK_MS = 5
"""How long a read waits that should not wait for a change: this is the server's time limit, too."""
_RESUME_BACKOFF = Backoff(0.1, 5.0)
SERVER_REPLY_BYTES = 16 * 2**20
"""mongod, FindCommon::kMaxBytesToReturnToClientAtOnce: the most that a reply has."""
_FIRST_EVENTS = 500
"""How many events the first reply may have, while their size is not known."""
_MOST = 2**31 - 1
_IDLE_REPLIES = 5
"""After this many replies in a row without a change, reads wait longer for one: each reply costs
CPU, and a change ends the wait."""


class ChangeStream:
    """A change stream of one scope, read by batches.

    One task reads at a time. ``interrupt`` ends the wait of a resume. It does not end a read, which
    would lose its reply. ``reply_bytes``: about how large a reply may be, if that is less than the
    server's own bound: so many events are asked for, by the size of the last ones.
    """

    def __init__(
        self,
        driver: Driver,
        scope: Scope,
        options: ChangeStreamOptions | None = None,
        start: StartPoint | None = None,
        *,
        activity: StreamActivity | None = None,
        interrupt: Interrupt | None = None,
        reply_bytes: int = SERVER_REPLY_BYTES,
    ) -> None:
        self.scope = scope
        self.activity = activity or StreamActivity(scope.name)
        self._driver = driver
        self._options = options or ChangeStreamOptions()
        self._position = ResumePosition(start or StartPoint())
        self._past = self._position.start.past
        self._interrupt = interrupt or Interrupt()
        self._session: Session | None = None
        self._cursor: Cursor | None = None
        self._unread: Reply | None = None
        self._failure: Exception | None = None
        self._idle_resumes = 0
        self._idle_replies = 0
        self._invalidated = False
        self._reply_bytes = reply_bytes
        few = min(_FIRST_EVENTS, self._options.batch_size or _FIRST_EVENTS)
        self._most = few if reply_bytes < SERVER_REPLY_BYTES else None
        self._joiner = Joiner(scope.name) if self._options.splits else None
        self._whole: ResumeToken | None = None
        """After the last reply that ended with a whole event, or its last whole event."""

    @property
    def resume_token(self) -> ResumeToken | None:
        """The cached token of the specification. Within a split event, that of the event before it:
        another stream needs all fragments."""
        within = self._joiner is not None and self._joiner.holds_part
        return self._whole if within else self._position.token

    @property
    def invalidated(self) -> bool:
        """Whether the stream has ended with an invalidate event: only ``startAfter`` continues.

        True even if the pipeline has removed that event: the server closes a cursor without an
        error for no other reason.
        """
        return self._invalidated

    async def open(self) -> None:
        """Runs the first aggregate; closes the stream if it fails."""
        try:
            self._session = await self._driver.start_session()
            reply = self._unread = await self._aggregate(self._position.start)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        self._position.opened(reply)

    async def next_batch(self, *, wait: bool = True) -> RawBatch:
        """One reply: a position, and events if there are any. The first reply is the aggregate's.

        With ``wait`` the server waits for a change; otherwise it only checks for one. Errors that
        end the stream: a :class:`DriverError` that is not resumable or comes from a resume,
        :class:`MissingResumeToken`, :class:`StreamEnded`, :class:`StreamInterrupted`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            batch = self._accept(await self._next_reply(wait))
        except BaseException as error:
            self._abandon()
            self._failure = error if isinstance(error, Exception) else _over(self.scope)
            raise
        self.activity.settled()
        return batch

    async def aclose(self) -> None:
        """Kills the cursor and ends the session. May be called more than once."""
        self._abandon()
        self.activity.settled()
        self._failure = self._failure or _over(self.scope)
        if self._session is not None:
            session, self._session = self._session, None
            await session.aclose()

    async def _next_reply(self, wait: bool) -> Reply:
        while self._unread is None:
            if self._cursor is None:
                raise _over(self.scope)
            try:
                wait_ms = self._wait_ms() if wait else _LOOK_MS
                reply = await self._cursor.next_batch(wait_ms, self._most)
            except DriverError as error:
                if not is_resumable(error):
                    raise
                await self._resume(error)
                continue
            self._idle_resumes = 0
            self._idle_replies = 0 if reply.bounds else self._idle_replies + 1
            self.activity.answered(reply.operation_time)
            if self._most is not None and reply.bounds:
                self._most = self._next_most(reply)
            return reply
        reply, self._unread = self._unread, None
        if reply.bounds:
            self._idle_resumes = 0
        return reply

    def _next_most(self, reply: Reply) -> int:
        """How many events such as these the next reply may have."""
        bounds = reply.bounds
        events, size = len(bounds) // 2, bounds[-1] - bounds[0]
        return min(max(self._reply_bytes * events // size, 1), self._options.batch_size or _MOST)

    def _wait_ms(self) -> int | None:
        """How long the next read waits for a change; ``None``: as the request says."""
        idle = self._idle_replies >= _IDLE_REPLIES
        wait_ms = self._options.idle_await_ms if idle else None
        self.activity.await_seconds = (wait_ms or self._options.max_await_time_ms or 1000) / 1000
        return wait_ms

    async def _resume(self, error: DriverError) -> None:
        """Makes the one attempt, with a delay if no reply came since the last resume."""
        self._abandon()
        self.activity.lost(error)
        delay = _RESUME_BACKOFF.delay(self._idle_resumes) if self._idle_resumes else 0.0
        self._idle_resumes += 1
        with self._interrupt.interrupts() as scope:
            await anyio.sleep(delay)
            try:
                reply = await self._aggregate(self._position.resume_point)
            except DriverError as failure:
                raise failure from error
            if reply.bounds or reply.closed:
                self._unread = reply  # an empty reply has only the known position
        if scope.cancelled_caught:
            raise StreamInterrupted(f"scope {self.scope.name!r}: stopped while resuming")
        self.activity.resumed(error)

    async def _aggregate(self, start: StartPoint) -> Reply:
        assert self._session is not None  # noqa: S101 - for the type checker: open() set it
        wanted = request(self.scope, self._options, replace(start, past=self._past))
        self._cursor = await self._session.open(wanted, self.activity.at_work)
        reply = self._cursor.first
        if not reply.bounds:
            self._position.advance(reply.post_batch_token)
        self.activity.opened(reply.operation_time, self._cursor.member)
        return reply

    def _accept(self, reply: Reply) -> RawBatch:
        """Moves the position after the reply, or after its last event that has a token."""
        buffer, bounds = reply.buffer, reply.bounds
        if bounds:
            self.activity.changed_at = anyio.current_time()
        seen = reply.survey or survey(buffer, bounds)
        nameless = seen.nameless
        if nameless is not None:
            self._abandon()
            self._failure = MissingResumeToken(
                f"scope {self.scope.name!r}: Cannot provide resume functionality when the resume "
                "token is missing: a stage of the pipeline removes _id from change events: correct "
                "the scope's pipeline"
            )
            if nameless == 0:
                raise self._failure
            bounds = bounds[: 2 * nameless]
        token = reply.post_batch_token if nameless is None else None
        if token is None and (last := RawBatch(buffer, bounds, None).last) is not None:
            token = last.token
        self._position.advance(token, events=len(bounds) // 2)
        ended = reply.closed and reply.post_batch_token is not None and nameless is None
        if ended or "invalidate" in seen.operations:
            self._invalidated = True
            self._abandon()
        elif reply.closed and nameless is None:
            self._cursor = None
            self._failure = _over(self.scope)
            if not bounds:
                raise self._failure
        if self._joiner is not None:
            buffer, bounds = self._joiner.join(buffer, bounds)
            if self._joiner.holds_part:
                batch = RawBatch(buffer, bounds, None)  # no position inside an event
                self._whole = batch.last.token if batch.last is not None else self._whole
                return batch
            self._whole = self._position.token
            return RawBatch(buffer, bounds, self._whole, reply.operation_time)
        return RawBatch(buffer, bounds, self._position.token, reply.operation_time, seen.operations)

    def _abandon(self) -> None:
        """Drops the cursor; the driver frees it in the background."""
        if self._cursor is not None:
            self._cursor.kill()
        self._cursor = self._unread = None

    async def __aenter__(self) -> ChangeStream:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _over(scope: Scope) -> StreamEnded:
    return StreamEnded(
        f"scope {scope.name!r}: the server closed the cursor without an invalidate event or an "
        "error, and without a position of the stream"
    )
