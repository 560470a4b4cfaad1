"""The lane of a handler that takes events in, and makes many of them durable at once."""

from __future__ import annotations

import anyio

from tailrace.engine.handle.batch_lane import BatchLane, Deliver, Gathered
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.lane import Unhandled
from tailrace.engine.handle.router import Wants
from tailrace.engine.handle.workers import Assignment
from tailrace.engine.ports import Commit
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.errors import TailraceError


class CommitLane(BatchLane):
    """Hands over what has come at once, and commits when enough was taken in.

    The watermark knows which places the handler has taken in, which of them a commit has finished,
    and how many bytes it holds of the others. No commit is larger than the handler asks, unless one
    place is.
    """

    def __init__(
        self,
        delivery: Delivery,
        commit: Commit,
        wants: Wants | None,
        watermark: Watermark,
        before: HandledBefore | None = None,
    ) -> None:
        super().__init__(delivery, wants, watermark, before)
        self._commit = commit
        self._taken: list[Place] = []
        self._left = (commit.events, commit.bytes)
        self._deadline = 0.0

    @property
    def backlog(self) -> int:
        # What is being taken in is still in memory.
        taking = self._assigned.work
        return len(self._queue) + (len(taking.places) if taking is not None else 0)

    async def _work(self, assigned: Assignment[Gathered]) -> None:
        self._assigned = assigned
        assigned.last = True  # the handler alone has what it took in: no other task can go on
        try:
            while self._failure is None and (self._taken or not self._done):
                if self._is_due:
                    await self._delivery.commit()
                    self._settle()
                elif self._waiting:
                    await self._hand_over(assigned)
                    assigned.last = True
                else:
                    await self._wait()
        except TailraceError as error:
            self._fail(error)

    @property
    def _is_due(self) -> bool:
        if not self._taken:
            return False
        if anyio.current_time() >= self._deadline:
            return True
        if not self._waiting:
            return self._closed or self._flush
        events, size = self._left
        return self._queue[0].events > events or self._queue[0].size > size

    @property
    def _room(self) -> tuple[int, int]:
        events, size = self._left
        most_events, most_bytes = super()._room
        return min(most_events, events), min(most_bytes or size, size)

    def unhandled(self) -> Unhandled:
        # A commit finishes all that was taken in, or nothing of it.
        return {place.number: None for place in self._taken}

    async def _handle(self, work: Gathered, deliver: Deliver) -> None:
        places, events = work.places, work.events
        if not events:
            await anyio.lowlevel.checkpoint()
            self._watermark.finish(*places)
            return
        if not self._taken:
            self._deadline = anyio.current_time() + self._commit.seconds
        count, size = sum(place.events for place in places), sum(place.size for place in places)
        self._left = (self._left[0] - count, self._left[1] - size)
        self._taken += places
        await self._delivery.take(events)
        if self._owns:
            work.note(self._delivery.name)
        self._watermark.take(*places)
        self._watermark.hold(self._delivery.name, self._commit.held())

    def _settle(self) -> None:
        done, self._taken = self._taken, []
        self._left = (self._commit.events, self._commit.bytes)
        self._watermark.hold(self._delivery.name, self._commit.held())
        self._watermark.commit(*done)

    async def _wait(self) -> None:
        """Until more has come, or what was taken in is due."""
        self._fed = anyio.Event()
        seconds = self._deadline - anyio.current_time() if self._taken else None
        with anyio.move_on_after(seconds):
            await self._fed.wait()
