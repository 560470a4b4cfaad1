"""The lane of a handler that takes events in, and makes many of them durable at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio

from tailrace.engine.handle.batch_lane import BatchLane, Taken
from tailrace.engine.handle.commits import Commits
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.router import Wants
from tailrace.engine.handle.workers import Assignment
from tailrace.engine.position.final_position import Unhandled
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.errors import TailraceError
from tailrace.event import ChangeEvent


class CommitLane(BatchLane):
    """Hands over what has come at once, and has it committed when enough was taken in.

    The watermark knows which places the handler has taken in, which of them a commit has finished,
    and how many bytes it holds of the others. No commit is larger than the handler asks, unless one
    place is.
    """

    def __init__(
        self,
        delivery: Delivery,
        wants: Wants | None,
        watermark: Watermark,
        before: HandledBefore | None = None,
    ) -> None:
        super().__init__(delivery, wants, watermark, before)
        assert delivery.handler.commit is not None  # noqa: S101 - for the type checker
        self._commit = commit = delivery.handler.commit
        self._commits = Commits(delivery)
        self._taken: list[Place] = []
        self._left = (commit.events, commit.bytes)
        self._deadline = 0.0
        self._taking = 0

    @property
    def backlog(self) -> int:
        # What is being taken in is still in memory.
        return len(self._queue) + self._taking

    async def _work(self, assigned: Assignment[Taken]) -> None:
        try:
            while not self._done:
                if self._is_due:
                    assigned.work = Taken(self._taken)
                    await self._commits.commit()
                    assigned.work = None
                    self._settle()
                elif self._queue:
                    await self._hand_over(assigned)
                else:
                    await self._wait()
        except TailraceError as error:
            self._fail(error)

    @property
    def _done(self) -> bool:
        return super()._done and not (self._taken and self._failure is None)

    @property
    def _is_due(self) -> bool:
        if not self._taken:
            return False
        if anyio.current_time() >= self._deadline:
            return True
        if not self._queue:
            return self._closed or self._hurried
        events, size = self._left
        return self._queue[0].events > events or self._queue[0].size > size

    @property
    def _room(self) -> tuple[int, int]:
        events, size = self._left
        return min(self._batch_size, events), min(self._batch_bytes or size, size)

    def unhandled(self) -> Unhandled:
        # A commit finishes all that was taken in, or nothing of it.
        return {place.number: None for place in (*self._taken, *self._at.places)}

    async def _handle(
        self, taken: Taken, deliver: Callable[[Sequence[ChangeEvent]], Awaitable[None]]
    ) -> None:
        places, events = taken.places, taken.events
        if not events:
            await anyio.lowlevel.checkpoint()
            self._watermark.finish(*places)
            return
        if not self._taken:
            self._deadline = anyio.current_time() + self._commit.seconds
        count, size = sum(place.events for place in places), sum(place.size for place in places)
        self._left = (self._left[0] - count, self._left[1] - size)
        self._taken += places
        self._taking = len(places)
        await self._commits.take(events)
        self._taking = 0
        if self._owns:
            taken.done = len(events)
            taken.note(self._delivery.name)
        self._watermark.take(*places)
        self._watermark.hold(self._delivery.name, self._commit.held())

    def _settle(self) -> None:
        done, self._taken = self._taken, []
        self._left = (self._commit.events, self._commit.bytes)
        self._watermark.hold(self._delivery.name, self._commit.held())
        self._watermark.commit(*done)

    async def _wait(self) -> None:
        """Until more has come, or the time of what was taken in is over."""
        self._fed = anyio.Event()
        seconds = self._deadline - anyio.current_time() if self._taken else None
        with anyio.move_on_after(seconds):
            await self._fed.wait()
