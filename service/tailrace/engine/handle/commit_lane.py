"""The lane of a handler that accepts events in small calls and commits many of them at once."""

from dataclasses import dataclass, field

import anyio

from tailrace.engine.handle.batch_lane import BatchLane, Deliver, Gathered
from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.lane import Assignment, Unhandled
from tailrace.engine.ports import Commit
from tailrace.engine.position.watermark import Place
from tailrace.errors import TailraceError


@dataclass(eq=False)
class CommitLane(BatchLane):
    """Hands over what has come; a commit exceeds its limits only if a single place does.

    A halted lane commits what the handler has accepted: that ends what its calls began.
    """

    delivery: CommitDelivery
    _taken: list[Place] = field(default_factory=list)
    _left: tuple[int, int] = (0, 0)
    """Events and bytes for which this commit still has room."""
    _deadline: float = 0.0

    def __post_init__(self) -> None:
        self._left = (self._commit.events, self._commit.bytes)

    @property
    def _commit(self) -> Commit:
        assert self.delivery.handler.commit is not None  # noqa: S101 - for the type checker
        return self.delivery.handler.commit

    @property
    def backlog(self) -> int:
        # Events that the handler is accepting are still in memory.
        taking = self._assigned.work
        return len(self._queue) + (len(taking.places) if taking is not None else 0)

    async def _work(self, assigned: Assignment[Gathered]) -> None:
        self._assigned = assigned
        assigned.last = True  # only the handler has what it accepted: no other task can go on
        try:
            while self._failure is None and (self._taken or not self._done):
                if self._is_due:
                    await self.delivery.commit()
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
            return self._closed or self._halted or self._flush
        events, size = self._left
        return self._queue[0].events > events or self._queue[0].size > size

    @property
    def _room(self) -> tuple[int, int]:
        events, size = self._left
        most_events, most_bytes = super()._room
        return min(most_events, events), min(most_bytes or size, size)

    def unhandled(self) -> Unhandled:
        # A commit finishes all accepted events, or none.
        return {place.number: None for place in self._taken}

    async def _handle(self, work: Gathered, deliver: Deliver) -> None:
        places, events = work.places, work.events
        if not events:
            await anyio.lowlevel.checkpoint()
            self.watermark.finish(*places)
            return
        if not self._taken:
            self._deadline = anyio.current_time() + self._commit.seconds
        count, size = sum(place.events for place in places), sum(place.size for place in places)
        self._left = (self._left[0] - count, self._left[1] - size)
        self._taken += places
        await self.delivery.take(events)
        if self.delivery.handler.position is not None:
            work.done = len(events)
            work.note(self.delivery.name)
        self.watermark.take(*places)
        self.watermark.hold(self.delivery.name, self._commit.held(self.delivery.identity))

    def _settle(self) -> None:
        done, self._taken = self._taken, []
        self._left = (self._commit.events, self._commit.bytes)
        self.watermark.hold(self.delivery.name, self._commit.held(self.delivery.identity))
        self.watermark.commit(*done)

    async def _wait(self) -> None:
        """Waits until more places come or the accepted events are due."""
        self._fed = anyio.Event()
        seconds = self._deadline - anyio.current_time() if self._taken else None
        with anyio.move_on_after(seconds):
            await self._fed.wait()
