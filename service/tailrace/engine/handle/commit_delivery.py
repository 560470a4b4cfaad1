"""Delivers events to a handler that accepts them in small calls and commits many at once."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import closes
from tailrace.engine.ports import PerBatch
from tailrace.errors import (
    DestinationUnavailable,
    Fenced,
    HandlerFailed,
    HandlerGaveUp,
    TailraceError,
    describe,
)
from tailrace.event import ChangeEvent


class CommitDelivery(Delivery):
    """Makes every call of one handler with a commit on one scope. No call is repeated."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._taken_events, self._taken_seconds = 0, 0.0

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
        self._outages.over()
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
            if self._outages.is_one(error):
                self._outages.begin(error)
                raise DestinationUnavailable(f"handler {self.name!r}: {describe(error)}") from error
            seconds = self._taken_seconds + self._clock() - began
            self._recorder.failed(seconds, self._taken_events)
            if isinstance(error, Fenced):
                raise self.position.fenced(error) from error
            if isinstance(error, TailraceError):
                raise
            if self._retry.policy.halt:
                why = "after one attempt (on_failure: halt)"
                raise HandlerGaveUp(self.name, what, error, why) from error
            raise HandlerFailed(self.name, what, error) from error
        self._taken_seconds += self._clock() - began
