"""Hands events to one handler of one scope, until each is handled or dead-lettered."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import anyio

from tailrace.engine.handle.destination_position import DestinationPosition
from tailrace.engine.handle.isolation import apart, cancelled_by_us, closes, stray_cancellation
from tailrace.engine.handle.outage import Outages
from tailrace.engine.handle.refused_events import divided
from tailrace.engine.handle.retry import Retry
from tailrace.engine.handle.time_limit import Returned, TimeLimit
from tailrace.engine.handle.transaction import units
from tailrace.engine.held_lease import HeldLease
from tailrace.engine.plan.loop_share import LoopShare
from tailrace.engine.ports import Call, Handler, PerBatch, RunIdentity, called_with
from tailrace.errors import (
    DestinationUnavailable,
    EventRefused,
    Fenced,
    Refused,
    TailraceError,
)
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken


@dataclass(slots=True)
class Handled:
    """The handled events of one sequence, while it is not handled as a whole.

    ``dead_letters`` are those of the ``tokens`` that became dead letters.
    """

    tokens: set[ResumeToken] = field(default_factory=set)
    dead_letters: set[ResumeToken] = field(default_factory=set)


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
        turn: anyio.Semaphore | None = None,
    ) -> None:
        """``turn``: calls with several events wait for it, as replays of letters do."""
        self.handler = handler
        self.share = share
        self.name = handler.name
        self.scope = identity.scope
        self._calls = handler.calls
        self._call = handler.calls.call
        self.identity = identity
        self._lease = lease
        self._turn = turn
        self._clock = perf_counter if lease is None else lease.clock
        self.recorder = self._recorder = retry.recorder
        self._retry = retry
        policy = handler.failure
        self._outages = Outages(
            self.scope,
            self.name,
            retry.recorder,
            retry.until,
            policy.outages,
            policy.outage_backoff,
        )
        self.position = DestinationPosition(handler, identity, self._outages)
        self._owns = handler.position is not None
        self._returned = Returned(self.scope, self.name)
        seconds = retry.policy.timeout_seconds
        self._limit = TimeLimit(seconds, self.scope, self.name, retry.recorder) if seconds else None
        # Keys whose events wait after dead letters: mostly none, and then the check must be cheap.
        self._held = retry.held

    # --- deliveries, with retries ------------------------------------------------------------

    def deliver(self, event: ChangeEvent) -> Awaitable[BaseException | None]:
        """Hands one event to a handler of single events; returns its error, for :meth:`recover`.

        A plain function, because each event would pay for a further coroutine.
        """
        if self._held:
            return self._deliver_unheld(event)
        return self._attempt(self._call, event, event, 1)

    async def _deliver_unheld(self, event: ChangeEvent) -> BaseException | None:
        if await self._retry.queue_after_letters(event):
            return None
        self._retry.require_running()
        return await self._attempt(self._call, event, event, 1)

    async def deliver_all(self, events: Sequence[ChangeEvent], handled: Handled) -> None:
        """Hands events to a handler of sequences.

        If the last attempt at a sequence fails, it is delivered once more event by event (or
        transaction by transaction), so that only the one at fault is dead-lettered.
        """
        if self._held:
            events = await self._unheld(events, handled)
            if not events:
                return
            self._retry.require_running()
        call, payload = called_with(self._calls, events)
        error = await self._attempt_in_turn(call, payload, events[0], len(events))
        if error is not None:
            await self.recover(events, error, handled)
        elif self._owns and call is self._call:
            self.position.stored(events[-1])

    async def deliver_apart(self, events: Sequence[ChangeEvent], handled: Handled) -> None:
        """Hands over the events that are left after the task that delivered them was lost."""
        rest = [event for event in events if event.token not in handled.tokens]
        left = await self._unheld(rest, handled)
        error = await self._once_more(left)
        if error is not None:
            await self.recover(left, error, handled)

    async def recover(
        self, events: Sequence[ChangeEvent], error: BaseException, handled: Handled
    ) -> None:
        """Gets the events handled after ``error``, or makes dead letters of those at fault."""
        if self._outages.is_one(error):
            after_it = await self._waited_out(events, error)
            if after_it is None:
                return
            error = after_it
        if isinstance(error, Refused) and (reasons := error.of(len(events))):
            await self._set_refused_aside(events, reasons, handled)
            return
        spent = await self._retry.retry(lambda: self._once_more(events), error, events[0])
        if spent is None:
            return
        error, attempts = spent
        # An attempt may have changed the events: take fresh ones to find their keys.
        events = await self.position.missing([event.fresh() for event in events])
        alone = units(events) if self.handler.whole_transactions else [[one] for one in events]
        if len(alone) == 1:
            await self._give_up(alone[0], error, attempts, handled)
            return
        for unheld in alone:
            unit = await self._unheld(unheld, handled)
            self._retry.require_running()
            failure = await self._once_more(unit)
            if failure is None:
                handled.tokens.update(event.token for event in unit)
            else:
                await self._give_up(unit, failure, attempts + 1, handled)

    async def _set_refused_aside(
        self, events: Sequence[ChangeEvent], reasons: Mapping[int, str], handled: Handled
    ) -> None:
        """Makes dead letters of the refused events, after the others are handled.

        Later events of the same keys queue after them; earlier ones are handled like the others.
        """
        others, aside = divided(events, reasons)
        error = await self._once_more(others)
        if error is not None:
            await self.recover(others, error, handled)
        handled.tokens.update(event.token for event in others)
        await self._dead_letter_refused(aside, handled)

    async def _dead_letter_refused(
        self, aside: Sequence[tuple[ChangeEvent, str]], handled: Handled
    ) -> None:
        for event, reason in aside:
            if reason or not await self._retry.queue_after_letters(event):
                await self._retry.give_up(event, EventRefused(reason), 1)
            self._note_dead_letter(event, handled)

    async def _give_up(
        self,
        events: Sequence[ChangeEvent],
        error: BaseException,
        attempts: int,
        handled: Handled,
    ) -> None:
        for event in await self.position.missing(events):
            await self._retry.give_up(event, error, attempts)
            self._note_dead_letter(event, handled)

    async def _once_more(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        """Makes a further attempt, with fresh copies of the events that the destination lacks.

        An outage meanwhile is waited out.
        """
        error = await self._tried(events)
        if error is not None and self._outages.is_one(error):
            return await self._waited_out(events, error)
        return error

    async def _waited_out(
        self, events: Sequence[ChangeEvent], error: BaseException
    ) -> BaseException | None:
        """Tries until the destination answers; returns the error that it answers, if any."""
        answer: BaseException | None = error
        with self._outages.outage(error) as outage:
            while answer is not None and self._outages.is_one(answer):
                await outage.wait(answer)
                answer = await self._tried(events)
            outage.over()
        return answer

    async def _tried(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        events = [event.fresh() for event in await self.position.missing(events)]
        if not events:
            return None
        call, payload = called_with(self._calls, events)
        attempt = apart(self.share.measured(call, self), f"{self.name} attempt")
        error = await self._attempt_in_turn(attempt, payload, events[0], len(events))
        if error is None and self._owns and call is self._call:
            self.position.stored(events[-1])
        return error

    async def _unheld(
        self, events: Sequence[ChangeEvent], handled: Handled
    ) -> Sequence[ChangeEvent]:
        """The events whose key has no dead letter; the others are stored after such letters."""
        left = []
        for event in events:
            if await self._retry.queue_after_letters(event):
                self._note_dead_letter(event, handled)
            else:
                left.append(event)
        return left

    def _note_dead_letter(self, event: ChangeEvent, handled: Handled) -> None:
        if isinstance(self._calls, PerBatch):
            handled.tokens.add(event.token)
            handled.dead_letters.add(event.token)

    async def _attempt_in_turn(
        self, call: Call, payload: Any, first: ChangeEvent, count: int
    ) -> BaseException | None:
        """An attempt of a handler that gets one call at a time, also while letters are replayed."""
        if self._turn is None:
            return await self._attempt(call, payload, first, count)
        async with self._turn:
            return await self._attempt(call, payload, first, count)

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
            if self._outages.is_one(error):
                return error  # no event's fault: nothing is counted
            self._recorder.failed(self._clock() - began, count)
            if isinstance(error, Fenced):
                raise self.position.fenced(error) from error
            if isinstance(error, DestinationUnavailable):
                raise  # only a new run can give the destination its events again
            if self._owns and isinstance(error, TailraceError):
                raise  # the destination's own position failed: no event's fault
            return error
        ended = self._clock()
        self._recorder.handled(ended - began, count)
        if ended >= share.ends:
            share.ended(ended)
        return None
