"""The lane of a handler that accepts events in small calls and commits many of them at once."""

from collections.abc import Collection
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handle.batch_lane import BatchLane, Deliver, Gathered
from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Handled
from tailrace.engine.handle.lane import Assignment, Unhandled, tokens
from tailrace.engine.ports import Commit
from tailrace.engine.position.place import Place
from tailrace.errors import DeliveryInterrupted, TailraceError
from tailrace.model import ResumeToken


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
    _accepted: int = 0
    """How many events the next commit covers."""
    _accepted_bytes: int = 0
    _committed: int = 0
    """How many events of the current work are committed."""

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
                    await self._commit_accepted()
                elif self._waiting:
                    await self._hand_over(assigned)
                    assigned.last = True
                else:
                    left = self._deadline - anyio.current_time() if self._taken else None
                    await self._wait(left)
        except TailraceError as error:
            self._fail(error)

    @property
    def _is_due(self) -> bool:
        if not self._taken:
            return False
        events, size = self._left
        if min(events, size) <= 0 or anyio.current_time() >= self._deadline:
            return True
        if not self._waiting:
            return self._closed or self._halted or self._flush
        return self._queue[0].events > events or self._queue[0].size > size

    @property
    def _room(self) -> tuple[int, int]:
        events, size = self._left
        most_events, most_bytes = super()._room
        return min(most_events, events), min(most_bytes or size, size)

    def unhandled(self) -> Unhandled:
        # A commit finishes all accepted events, or none.
        found: dict[int, Collection[ResumeToken] | None] = {n.number: None for n in self._taken}
        work, committed = self._assigned.work, self._committed
        if work is not None:
            left = tokens(work.events[committed:]) if committed else None
            found |= dict.fromkeys((place.number for place in work.places), left)
        return found

    async def _handle(self, work: Gathered, deliver: Deliver) -> None:
        places, self._committed = work.places, 0
        if not work.events:
            await anyio.lowlevel.checkpoint()
            self.watermark.finish(*places)
            return
        if not self._taken:
            self._deadline = anyio.current_time() + self._commit.seconds
        while work.done < len(work.events):
            if work.done and self.delivery.share.closed:
                await self.delivery.share.next_slice(self.delivery)
            if work.done and self._halted:
                await self._commit_accepted(work)
                raise DeliveryInterrupted(f"handler {self.delivery.name!r}: stopped between calls")
            some = self._next_call(work)
            if self._is_ddl_alone(some):
                await self._commit_accepted(work)
                await self.delivery.deliver_all(some, Handled())
                work.done += len(some)
                self._committed = work.done
            else:
                self._accepted += await self.delivery.take(some)
                if self._commit.held is None:
                    self._accepted_bytes += sum([event.size for event in some])
                work.done += len(some)
        self._note(work)
        count, size = sum(place.events for place in places), sum(place.size for place in places)
        self._left = (self._left[0] - count, self._left[1] - size)
        self._taken += places
        self.watermark.take(*places)
        self._hold()

    async def _commit_accepted(self, work: Gathered | None = None) -> None:
        """Commits; finishes the places whose events are all accepted.

        ``work``: what the handler is accepting. Its events so far are committed, too.
        """
        if self._accepted:
            await self.delivery.commit()
        if work is not None:
            self._committed = work.done
            self._note(work)
        done, self._taken = self._taken, []
        self._accepted = self._accepted_bytes = 0
        self._left = (self._commit.events, self._commit.bytes)
        self._deadline = anyio.current_time() + self._commit.seconds
        self._hold()
        if done:
            self.watermark.finish(*done)

    def _hold(self) -> None:
        held = self._commit.held
        size = self._accepted_bytes if held is None else held(self.delivery.identity)
        self.watermark.hold(size)
