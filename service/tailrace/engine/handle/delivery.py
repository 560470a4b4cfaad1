"""Hands events to one handler of one scope, until each is handled or dead-lettered."""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import anyio

from tailrace.engine.handle.isolation import apart, cancelled_by_us, closes, stray_cancellation
from tailrace.engine.handle.loop_share import LoopShare
from tailrace.engine.handle.retry import Retry
from tailrace.engine.handle.time_limit import Returned, TimeLimit
from tailrace.engine.held_lease import HeldLease
from tailrace.engine.ports import Call, Handler, PerBatch, RunIdentity, called_with
from tailrace.engine.read.transactions import units
from tailrace.errors import (
    CheckpointFenced,
    DestinationUnavailable,
    Fenced,
    HandlerFailed,
    HandlerGaveUp,
    InvalidPosition,
    ScopeHalted,
    TailraceError,
    describe,
)
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken, SinkPosition
from tailrace.model.gap import Gap

T = TypeVar("T")


class Delivery:
    """Makes every call of one handler on one scope.

    The first attempt runs in the caller's task, which the handler may cancel. Each further attempt
    runs in a task of its own: if that task is cancelled, the attempt has failed.
    """

    def __init__(
        self,
        handler: Handler,
        retry: Retry,
        identity: RunIdentity,
        share: LoopShare,
        lease: HeldLease | None = None,
    ) -> None:
        self.handler = handler
        self.share = share
        self.name = handler.name
        self.scope = identity.scope
        self._calls = handler.calls
        self._call = handler.calls.call
        self.identity = identity
        self._lease = lease
        self._clock = perf_counter if lease is None else lease.clock
        self._recorder = retry.recorder
        self._retry = retry
        self._returned = Returned(self.scope, self.name)
        seconds = retry.policy.timeout_seconds
        self._limit = TimeLimit(seconds, self.scope, self.name, retry.recorder) if seconds else None
        # Keys whose events wait after dead letters: mostly none, and then the check must be cheap.
        self._held = retry.held
        self.over: set[ResumeToken] = set()
        """The handled events of the current sequence, while it is not handled as a whole."""
        self.dead_lettered: set[ResumeToken] = set()
        """The events of ``over`` that are dead letters."""
        self._taken_events, self._taken_seconds = 0, 0.0

    async def skipped(self, gap: Gap) -> None:
        """Tells the handler about a gap, if it wants to know; raises :class:`HandlerFailed`."""
        own = self.handler.position
        if own is not None and own.skipped is not None:
            await self._asked("a gap", own.skipped, gap)

    async def position(self) -> SinkPosition | None:
        """The destination's position; ``None`` if it has stored nothing or keeps no position.

        Raises :class:`HandlerFailed` if the call fails, :class:`ScopeHalted` for an invalid result.
        """
        if self.handler.position is None:
            return None
        try:
            return await self._asked("its own position", self.handler.position.load)
        except InvalidPosition as error:
            raise ScopeHalted(
                f"scope {self.scope!r}: handler {self.name!r}: its begin() returned no position of "
                f"this scope: {error}. Let it return None where nothing is stored, else the "
                "batch.position that was stored last"
            ) from error

    async def _asked(self, what: str, question: Callable[..., Awaitable[T]], *given: Any) -> T:
        try:
            return await apart(question, f"{self.name} {what}")(self.identity, *given)
        except (TailraceError, anyio.get_cancelled_exc_class()):
            raise
        except Fenced as error:
            raise self._fenced(error) from error
        except BaseException as error:
            raise HandlerFailed(self.name, what, error) from error

    def _fenced(self, error: Fenced) -> CheckpointFenced:
        return CheckpointFenced(
            f"scope {self.scope!r}: handler {self.name!r} was fenced by its destination: another "
            f"process writes there now: {describe(error)}"
        )

    # --- deliveries, with retries ------------------------------------------------------------

    async def deliver(self, event: ChangeEvent) -> None:
        """Hands one event to a handler of single events. Raises what the retry raises."""
        if self._held:
            if await self._retry.follow(event):
                return
            self._retry.require_running()
        error = await self._attempt(self._call, event, event, 1)
        if error is not None:
            await self._overcome([event], error)

    async def deliver_all(self, events: Sequence[ChangeEvent]) -> None:
        """Hands events to a handler of sequences.

        If the last attempt at a sequence fails, it is delivered once more event by event (or
        transaction by transaction), so that only the one at fault is dead-lettered.
        """
        if self.over:
            self.over, self.dead_lettered = set(), set()
        if self._held:
            events = await self._unheld(events)
            if not events:
                return
            self._retry.require_running()
        call, payload = called_with(self._calls, events)
        error = await self._attempt(call, payload, events[0], len(events))
        if error is not None:
            await self._overcome(events, error)

    async def deliver_apart(self, events: Sequence[ChangeEvent]) -> None:
        """Hands over the events that are left after the task that delivered them was lost."""
        left = await self._unheld([event for event in events if event.token not in self.over])
        error = await self._once_more(left)
        if error is not None:
            await self._overcome(left, error)

    async def _overcome(self, events: Sequence[ChangeEvent], error: BaseException) -> None:
        spent = await self._retry.insist(lambda: self._once_more(events), error, events[0])
        if spent is None:
            return
        error, attempts = spent
        # An attempt may have changed the events: take fresh ones to find their keys.
        events = await self._missing([event.fresh() for event in events])
        alone = units(events) if self.handler.whole_transactions else [[one] for one in events]
        if len(alone) == 1:
            await self._give_up(alone[0], error, attempts)
            return
        for unheld in alone:
            unit = await self._unheld(unheld)
            self._retry.require_running()
            failure = await self._once_more(unit)
            if failure is None:
                self.over.update(event.token for event in unit)
            else:
                await self._give_up(unit, failure, attempts + 1)

    async def _give_up(
        self, events: Sequence[ChangeEvent], error: BaseException, attempts: int
    ) -> None:
        for event in await self._missing(events):
            await self._retry.give_up(event, error, attempts)
            self._note_dead_letter(event)

    async def _once_more(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        """Makes a further attempt, with fresh copies of the events that the destination lacks."""
        events = [event.fresh() for event in await self._missing(events)]
        if not events:
            return None
        call, payload = called_with(self._calls, events)
        call = apart(self.share.measured(call, self), f"{self.name} attempt")
        return await self._attempt(call, payload, events[0], len(events))

    async def _missing(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """The events that the destination lacks: a failed attempt may have stored some.

        Without a position of the destination: all.
        """
        position = await self.position() if events else None
        for index in reversed(range(len(events))):
            if position is not None and position.is_at(events[index]):
                return events[index + 1 :]
        return events

    async def _unheld(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """The events whose key has no dead letter; the others are stored after such letters."""
        left = []
        for event in events:
            if await self._retry.follow(event):
                self._note_dead_letter(event)
            else:
                left.append(event)
        return left

    def _note_dead_letter(self, event: ChangeEvent) -> None:
        if isinstance(self._calls, PerBatch):
            self.over.add(event.token)
            self.dead_lettered.add(event.token)

    async def _attempt(
        self, call: Call, payload: Any, first: ChangeEvent, count: int
    ) -> BaseException | None:
        """Calls the handler once with ``count`` events; counts the call, and returns its error.

        Whatever the handler raises is its error, even ``SystemExit``, except for a cancellation by
        us, or a stray cancellation of our task, which an earlier call may have requested. Raises
        :class:`tailrace.errors.LeaseLost` if no call may begin any more.
        """
        began, lease, share = self._clock(), self._lease, self.share
        if lease is not None and began >= lease.deadline:
            lease.require()
        if share.measuring:
            call = share.measured(call, self)
        try:
            if self._limit is None:
                result = await call(payload, self.identity)
            else:
                result = await self._limit.call(call, payload, self.identity, first)
            if result is not None:
                self._returned.check(result)
        except BaseException as error:
            if closes(error):
                raise
            cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            if cancelled_by_us():
                if cancelled:
                    raise
                await anyio.lowlevel.checkpoint_if_cancelled()
            if cancelled and stray_cancellation():
                raise
            self._recorder.failed(self._clock() - began, count)
            if isinstance(error, Fenced):
                raise self._fenced(error) from error
            if isinstance(error, DestinationUnavailable):
                raise  # no event's fault: the scope waits until the destination is back
            if self.handler.position is not None and isinstance(error, TailraceError):
                raise  # the destination's own position failed: no event's fault
            return error
        ended = self._clock()
        self._recorder.handled(ended - began, count)
        if ended >= share.ends:
            share.ended(ended)
        return None

    # --- a handler with a commit -------------------------------------------------------------

    async def take(self, events: Sequence[ChangeEvent]) -> None:
        """Lets the handler accept the events. Raises as :meth:`commit` does."""
        self._taken_events += len(events)
        assert isinstance(self._calls, PerBatch)  # noqa: S101 - for the type checker
        payload = self._calls.payload(events)
        await self._part(lambda: self._call(payload, self.identity), "what it takes in")

    async def commit(self) -> None:
        """Commits: all accepted events are handled when this returns.

        There is no retry, since only the handler has the earlier events. Raises
        :class:`HandlerFailed`, :class:`HandlerGaveUp` where the policy halts, or the handler's own
        :class:`TailraceError`.
        """
        commit = self.handler.commit
        assert commit is not None  # noqa: S101 - for the type checker
        await self._part(lambda: commit.call(self.identity), "a commit")
        self._recorder.handled(self._taken_seconds, self._taken_events)
        self._taken_events, self._taken_seconds = 0, 0.0

    async def _part(self, call: Callable[[], Awaitable[None]], what: str) -> None:
        """Makes one of the calls that belong to a commit; together they count as one call."""
        if self._lease is not None:
            self._lease.require()
        began = self._clock()
        try:
            await self.share.measured(call, self)()
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) or closes(error):
                raise
            seconds = self._taken_seconds + self._clock() - began
            self._recorder.failed(seconds, self._taken_events)
            if isinstance(error, TailraceError):
                raise
            if self._retry.policy.halt:
                why = "after one attempt (on_failure: halt)"
                raise HandlerGaveUp(self.name, what, error, why) from error
            raise HandlerFailed(self.name, what, error) from error
        self._taken_seconds += self._clock() - began
