"""Hands events to one handler of one scope: each is handled or set aside when it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import anyio

from tailrace.engine.handle.isolation import apart, cancelled_by_us, closes, stray_cancellation
from tailrace.engine.handle.retry import Attempt, Retry, Spent
from tailrace.engine.handle.time_limit import Returned, TimeLimit
from tailrace.engine.ports import Handler, Owner
from tailrace.engine.read.transactions import units
from tailrace.errors import (
    DestinationUnavailable,
    HandlerFailed,
    InvalidPosition,
    ScopeHalted,
    TailraceError,
)
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken, SinkPosition
from tailrace.model.gap import Gap
from tailrace.observe.handler_recorder import HandlerRecorder

T = TypeVar("T")


class Delivery:
    """An event that it returns from is handled: by the handler, or set aside by the retry.

    The first attempt is made in the caller's task, which may be lost by it
    (:mod:`tailrace.engine.handle.isolation`); :meth:`deliver_apart` goes on then, and makes each in
    a task of its own, as further attempts always are. What cancels such an attempt was its own
    doing, and counts as its failure.

    Without a retry a handler has one attempt, and :class:`tailrace.errors.HandlerFailed` names
    the event by its token's digest. Raises what the retry raises otherwise.
    """

    def __init__(
        self,
        handler: Handler,
        recorder: HandlerRecorder,
        retry: Retry | None = None,
        owner: Owner | None = None,
    ) -> None:
        self.handler = handler
        self.name = handler.name
        self._on_event = handler.on_event
        self._on_events = handler.on_events
        self._owner = owner
        self.recorder = recorder
        self._retry = retry
        self.scope = retry.scope if retry else ""
        self._returned = Returned(self.scope, self.name)
        seconds = retry.policy.timeout_seconds if retry else None
        self._limit = TimeLimit(seconds, self.scope, self.name, recorder) if seconds else None
        # Keys whose events go behind letters: mostly none, which must cost an event little.
        self._held: Callable[[], Collection[Hashable]] = retry.held if retry else tuple
        self.over: set[ResumeToken] = set()
        """Of the sequence at hand: events that are handled, though the sequence is not."""
        self.aside: set[ResumeToken] = set()
        """Those of them that were set aside."""

    async def skipped(self, gap: Gap) -> None:
        """Tells the handler of a gap, if it wants to know, before anything behind it comes.

        Raises :class:`tailrace.errors.HandlerFailed`.
        """
        if self.handler.skipped is not None and self._owner is not None:
            await self._asked("a gap", self.handler.skipped, self._owner, gap)

    async def position(self) -> SinkPosition | None:
        """Where the destination stands; ``None`` if it is empty or keeps no position.

        Raises :class:`tailrace.errors.HandlerFailed` where it cannot say, and :class:`ScopeHalted`
        where what it says is no position.
        """
        if self.handler.position is None or self._owner is None:
            return None
        try:
            return await self._asked("its own position", self.handler.position, self._owner)
        except InvalidPosition as error:
            raise ScopeHalted(
                f"scope {self._owner.scope!r}: handler {self.name!r}: its position() returned no "
                f"position: {error}. Let it return None where nothing is stored, else the id of "
                "the last event that is (event.id), or SinkPosition(event.id, event.cluster_time)"
            ) from error

    async def _asked(self, what: str, question: Callable[..., Awaitable[T]], *given: Any) -> T:
        try:
            return await apart(question, f"{self.name} {what}")(*given)
        except (TailraceError, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:
            raise HandlerFailed(self.name, what, error) from error

    async def deliver(self, event: ChangeEvent) -> None:
        """To a handler of single events."""
        assert self._on_event is not None  # noqa: S101 - for the type checker
        if self._held() and await self._goes_behind(event):
            return
        error = await self._attempt(self._on_event, event, event, 1)
        if error is not None:
            await self._overcome(event, error)

    async def deliver_apart(self, event: ChangeEvent) -> None:
        """As :meth:`deliver`, after the task that did so was lost."""
        if self._held() and await self._goes_behind(event):
            return
        error = await self._again(event)
        if error is not None:
            await self._overcome(event, error)

    async def _overcome(self, event: ChangeEvent, error: BaseException) -> None:
        spent = await self._insist(lambda: self._again(event), event, error)
        if spent is not None:
            await self._give_up(event, spent)

    async def _again(self, event: ChangeEvent) -> BaseException | None:
        assert self._on_event is not None  # noqa: S101 - for the type checker
        return await self._attempt(
            apart(self._on_event, f"{self.name} attempt"), event.fresh(), event, 1
        )

    async def deliver_all(self, events: Sequence[ChangeEvent]) -> None:
        """To a handler of sequences.

        A sequence that fails to the last attempt is handed over once more event by event (or
        transaction by transaction), to find the one that is at fault; the others are not set
        aside with it.
        """
        assert self._on_events is not None  # noqa: S101 - for the type checker
        if self.over:
            self.over, self.aside = set(), set()
        if self._held():
            events = [event for event in events if not await self._goes_behind(event)]
            if not events:
                return
        await self._overcome_all(events, await self._attempt_all(self._on_events, events))

    async def deliver_all_apart(self, events: Sequence[ChangeEvent]) -> None:
        """As :meth:`deliver_all`, after the task that did so was lost."""
        left = [event for event in events if event.token not in self.over]
        left = [event for event in left if not await self._goes_behind(event)]
        await self._overcome_all(left, await self._once_more(left))

    async def _overcome_all(
        self, events: Sequence[ChangeEvent], error: BaseException | None
    ) -> None:
        if error is None:
            return
        spent = await self._insist(lambda: self._once_more(events), events[0], error)
        if spent is None:
            return
        # What an attempt has changed in the events must not decide where they belong.
        events = await self._missing([event.fresh() for event in events])
        alone = units(events) if self.handler.whole_transactions else [[one] for one in events]
        if len(alone) == 1:
            await self._give_up_all(alone[0], spent)
            return
        for unit in alone:
            await self._alone(unit, spent.attempts)

    async def _alone(self, unit: Sequence[ChangeEvent], attempts: int) -> None:
        unit = [event for event in unit if not await self._goes_behind(event)]
        error = await self._once_more(unit)
        if error is None:
            self.over.update(event.token for event in unit)
        else:
            await self._give_up_all(unit, Spent(error, attempts + 1))

    async def _give_up_all(self, unit: Sequence[ChangeEvent], spent: Spent) -> None:
        for event in await self._missing(unit):
            await self._give_up(event, spent)

    async def _once_more(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        """A further attempt at a sequence, with what the destination still does not have.

        Each gets the events as they came: what one has changed in them is gone. Raises as
        :meth:`_missing` does.
        """
        assert self._on_events is not None  # noqa: S101 - for the type checker
        events = await self._missing(events)
        if not events:
            return None
        fresh = [event.fresh() for event in events]
        return await self._attempt_all(apart(self._on_events, f"{self.name} attempt"), fresh)

    async def _missing(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """What a destination that owns its position lacks: a failed attempt may have been stored.

        Raises :class:`tailrace.errors.HandlerFailed` where it cannot say.
        """
        position = await self.position() if events else None
        for index in reversed(range(len(events))):
            if position is not None and events[index].token == position.token:
                return events[index + 1 :]
        return events

    async def _insist(
        self, attempt: Attempt, event: ChangeEvent, error: BaseException
    ) -> Spent | None:
        if self._retry is None:
            raise HandlerFailed(self.name, event.token.digest, error) from error
        return await self._retry.insist(attempt, error, event)

    async def _give_up(self, event: ChangeEvent, spent: Spent) -> None:
        assert self._retry is not None  # noqa: S101 - for the type checker
        await self._retry.give_up(event, spent)
        self._note_aside(event)

    async def _goes_behind(self, event: ChangeEvent) -> bool:
        retry = self._retry
        if retry is None or event.key not in retry.held():
            return False
        behind = await retry.set_behind(event)
        if behind:
            self._note_aside(event)
        return behind

    def _note_aside(self, event: ChangeEvent) -> None:
        if self._on_events is not None:
            self.over.add(event.token)
            self.aside.add(event.token)

    async def _attempt_all(
        self, call: Callable[[Any], Awaitable[Any]], events: Sequence[ChangeEvent]
    ) -> BaseException | None:
        return await self._attempt(call, self.handler.payload(events), events[0], len(events))

    async def _attempt(
        self, call: Callable[[Any], Awaitable[Any]], payload: Any, first: ChangeEvent, count: int
    ) -> BaseException | None:
        """Calls the handler once; counts and times the call, and returns its error.

        The payload is of ``count`` events, and named after the ``first``.

        Whatever it raises is one, its ``SystemExit`` too: a handler does not end the service. But
        while we are being cancelled nothing is: the event will come again. Nor is a cancellation of
        our task by somebody else, which an earlier call may have asked for.
        """
        began = perf_counter()
        try:
            if self._limit is None:
                result = await call(payload)
            else:
                result = await self._limit.call(call, payload, first)
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
            self.recorder.failed(perf_counter() - began, count)
            if isinstance(error, DestinationUnavailable):
                raise  # no event's fault: the scope waits until the destination is back
            if self.handler.position is not None and isinstance(error, TailraceError):
                raise  # it is the destination's own position that failed, and no event's fault
            return error
        self.recorder.handled(perf_counter() - began, count)
        return None
