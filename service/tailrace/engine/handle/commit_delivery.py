"""Delivers events to a handler that accepts them in small calls and commits many at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from tailrace.engine.handle.delivery import Delivery, Handled
from tailrace.engine.handle.isolation import is_closing
from tailrace.engine.handle.refused_events import divided
from tailrace.engine.ports import Call, PerBatch, RunIdentity
from tailrace.errors import (
    DestinationUnavailable,
    Fenced,
    HandlerFailed,
    HandlerGaveUp,
    Refused,
    TailraceError,
    describe,
)
from tailrace.event import ChangeEvent
from tailrace.event.naming import identified


class CommitDelivery(Delivery):
    """Makes every call of one handler with a commit on one scope.

    No call is repeated, since only the handler has the earlier events: a failure ends the run.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._taken_events, self._taken_seconds = 0, 0.0

    async def take(self, events: Sequence[ChangeEvent]) -> int:
        """Lets the handler accept the events; returns how many it has accepted.

        The others are dead letters. Raises as :meth:`commit` does.
        """
        handled = Handled()
        if self._held:
            events = await self._unheld(events, handled)
        left, aside = events, list[tuple[ChangeEvent, str]]()
        while left and (refused := await self._accept(left)):
            left, more = divided(left, refused)
            aside += more
        if aside:
            order = {event: number for number, event in enumerate(events)}
            aside.sort(key=lambda refusal: order[refusal[0]])
            await self._dead_letter_refused(aside, handled)
        return len(left)

    async def _tried(self, events: Sequence[ChangeEvent]) -> BaseException | None:
        """For an event beside the runs: it is accepted, and committed."""
        try:
            if refused := await self._accept(events):
                return Refused(refused)
            await self.commit()
        except (DestinationUnavailable, HandlerFailed) as error:
            return error.__cause__ or error
        return None

    async def _accept(self, events: Sequence[ChangeEvent]) -> Mapping[int, str]:
        """Returns why events are refused, by their indices; then none is accepted."""
        refused = dict[int, str]()

        async def call(payload: Any, identity: RunIdentity) -> Any:
            try:
                return await self._call(payload, identity)
            except Refused as error:
                refused.update(error.of(len(events)))
                if self._owns or not refused:
                    raise

        assert isinstance(self._calls, PerBatch)  # noqa: S101 - for the type checker
        self._taken_events += len(events)
        payload = self._calls.payload(events)
        await self._part(call, payload, events, "what it takes in")
        if refused:
            self._taken_events -= len(events)
        elif self._owns and self._calls.on_ddl is not None:
            self.position.accepted(events)
        return refused

    async def commit(self) -> None:
        """Commits: all accepted events are handled when this returns.

        Raises :class:`HandlerFailed`, :class:`HandlerGaveUp` where the policy halts, or the
        handler's own :class:`TailraceError`.
        """
        commit = self.handler.commit
        assert commit is not None  # noqa: S101 - for the type checker

        async def call(payload: None, identity: RunIdentity) -> Any:
            return await commit.call(identity)

        await self._part(call, None, (), "a commit")
        self.position.committed()
        self._outages.over()
        self.recorder.handled(self._taken_seconds, self._taken_events)
        self._taken_events, self._taken_seconds = 0, 0.0

    def rest(self) -> None:
        """Everything is handled, or an operator, a gap or dead letters took what the destination
        lacked in an outage: no further call would end that."""
        if not self._owns:
            self._outages.forget()

    async def _part(
        self, call: Call, payload: Any, events: Sequence[ChangeEvent], what: str
    ) -> None:
        """Makes one of the calls that belong to a commit; together they count as one call."""
        first = events[0] if events else None
        if self._lease is not None:
            self._lease.require()
        began = self.clock()
        call = self.share.measured(call, self)
        try:
            if self._limit is None:
                result = await call(payload, self.identity)
            else:
                result = await self._limit.call(call, payload, self.identity, first)
            if result is not None:
                self._returned.check(result)
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) or is_closing(error):
                raise
            if self._outages.is_one(error):
                self._outages.begin(error)
                raise DestinationUnavailable(f"handler {self.name!r}: {describe(error)}") from error
            seconds = self._taken_seconds + self.clock() - began
            self.recorder.failed(seconds, self._taken_events)
            if isinstance(error, Fenced):
                raise await self.position.judged(error, first) from error
            if isinstance(error, TailraceError):
                raise
            if isinstance(error, Refused) and (reasons := error.of(len(events))):
                what = identified(events[min(reasons)])
            if self._retry.policy.halt:
                why = "after one attempt (on_failure: halt)"
                raise HandlerGaveUp(self.name, what, error, why) from error
            raise HandlerFailed(self.name, what, error) from error
        self._taken_seconds += self.clock() - began
