"""The calls of one handler on one scope: each attempt, and what its error means."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import anyio

from tailrace.engine.handle.call_size import CallSize
from tailrace.engine.handle.destination_position import DestinationPosition
from tailrace.engine.handle.isolation import (
    cancelled_by_us,
    in_own_task,
    is_closing,
    stray_cancellation,
)
from tailrace.engine.handle.outage import Outages
from tailrace.engine.handle.retry import Retry
from tailrace.engine.handle.time_limit import Returned, TimeLimit
from tailrace.engine.handle.transaction import units
from tailrace.engine.held_lease import HeldLease
from tailrace.engine.plan.loop_share import LoopShare
from tailrace.engine.ports import Call, Handler, RunIdentity, called_with
from tailrace.errors import BatchTooLarge, DestinationUnavailable, Fenced, TailraceError
from tailrace.event import ChangeEvent


class Attempts:
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
        call_slot: anyio.Semaphore | None = None,
    ) -> None:
        """``call_slot``: calls with several events wait for it, as replays of dead letters do."""
        self.handler = handler
        self.share = share
        self.name = handler.name
        self.scope = identity.scope
        self._calls = handler.calls
        self._call = handler.calls.call
        self.identity = identity
        self._lease = lease
        self._call_slot = call_slot
        self.clock = perf_counter if lease is None else lease.clock
        self.recorder = retry.recorder
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
        self.size = CallSize(self.scope, self.name, handler.calls)
        self.position = DestinationPosition(handler, identity, self._outages)
        self._owns = handler.position is not None
        self._returned = Returned(self.scope, self.name)
        seconds = retry.policy.timeout_seconds
        self._limit = TimeLimit(seconds, self.scope, self.name, retry.recorder) if seconds else None
        # Keys whose events wait after dead letters: mostly none, and then the check must be cheap.
        self._held = retry.held

    def try_one_by_one(self) -> None:
        """The handler is detached: it tries with one call while its destination is down."""
        self._outages.one_by_one = True

    async def again(self, event: ChangeEvent) -> BaseException | None:
        """Hands an event over once, beside the runs; returns its error. Waits out an outage."""
        return await self._once_more([event])

    async def _once_more(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        """Makes a further attempt, with fresh copies of the events that the destination lacks.

        An outage meanwhile is waited out.
        """
        error = await self._tried(events)
        if error is not None and self._is_outage(events, error):
            return await self._waited_out(events, error)
        return error

    def _is_outage(self, events: Sequence[ChangeEvent], error: BaseException) -> bool:
        """Whether the destination is down, and not only for so many events."""
        is_one = self._outages.is_one(error)
        return is_one and not (isinstance(error, BatchTooLarge) and len(self._units(events)) > 1)

    def _units(self, events: Sequence[ChangeEvent]) -> Sequence[Sequence[ChangeEvent]]:
        """The smallest calls that the events can be divided into."""
        return units(events) if self.handler.whole_transactions else [[one] for one in events]

    async def _waited_out(
        self, events: Sequence[ChangeEvent], error: BaseException
    ) -> BaseException | None:
        """Tries until the destination answers; returns the error that it answers, if any."""
        answer: BaseException | None = error
        with self._outages.outage(error) as outage:
            while answer is not None and self._is_outage(events, answer):
                await outage.wait(answer)
                answer = await self._tried(events)
            outage.over()
        return answer

    async def _tried(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        events = [event.fresh() for event in await self.position.missing(events)]
        if not events:
            return None
        call, payload = called_with(self._calls, events)
        attempt = in_own_task(self.share.measured(call, self), f"{self.name} attempt")
        error = await self._attempt_in_slot(attempt, payload, events[0], len(events))
        if error is None and self._owns and call is self._call:
            self.position.stored(events)
        return error

    async def _attempt_in_slot(
        self, call: Call, payload: Any, first: ChangeEvent, count: int
    ) -> BaseException | None:
        """An attempt of a handler that gets one call at a time, also while letters are replayed."""
        if self._call_slot is None:
            return await self._attempt(call, payload, first, count)
        async with self._call_slot:
            return await self._attempt(call, payload, first, count)

    async def _attempt(
        self, call: Call, payload: Any, first: ChangeEvent, count: int
    ) -> BaseException | None:
        """Calls the handler once with ``count`` events; counts the call, and returns its error.

        Whatever the handler raises is its error, even ``SystemExit``, except for a cancellation by
        us, or a stray cancellation of our task, which an earlier call may have requested. Raises
        :class:`tailrace.errors.LeaseLost` if no call may begin any more.
        """
        began, lease, share = self.clock(), self._lease, self.share
        if lease is not None and began >= lease.deadline:
            lease.require()
        try:
            if self._limit is None:
                made = call(payload, self.identity)
                result = await (share.measure(made, self) if share.measuring else made)
            else:
                if share.measuring:
                    call = share.measured(call, self)
                result = await self._limit.call(call, payload, self.identity, first)
            if result is not None:
                self._returned.check(result)
        except BaseException as error:
            if is_closing(error):
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
            self.recorder.failed(self.clock() - began, count)
            if isinstance(error, Fenced):
                raise await self.position.judged(error, first) from error
            if isinstance(error, DestinationUnavailable):
                raise  # only a new run can give the destination its events again
            if self._owns and isinstance(error, TailraceError):
                raise  # the destination's own position failed: no event's fault
            return error
        ended = self.clock()
        self.recorder.handled(ended - began, count)
        if ended >= share.ends:
            share.ended(ended)
        return None
