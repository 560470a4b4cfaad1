"""A destination with or without a position of its own, which may be down."""

from collections.abc import Sequence
from typing import Any

from tailrace import Unavailable
from tailrace.engine import Routed
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tests.handlers import handler
from tests.unit.engine.changes import number, token

AT_ONCE = FailurePolicy(attempts=2, backoff=Backoff(0, 0))


class Database:
    """A destination that answers with ``error`` while it has one; else it stores batches."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls: list[list[int]] = []
        self.stored: list[int] = []
        self.begun = 0

    async def on_event(self, event: ChangeEvent) -> None:
        await self.on_events([event])

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        self.calls.append([number(event) for event in events])
        if self.error is not None:
            raise self.error
        self.stored += self.calls[-1]

    async def position(self, identity: object) -> SinkPosition | None:
        self.begun += 1
        if self.error is not None:
            raise self.error
        return SinkPosition(token(self.stored[-1])) if self.stored else None

    def routed(self, form: str = "event", **fields: Any) -> Routed:
        calls = {"on_event": self.on_event} if form == "event" else {"on_events": self.on_events}
        position = {"position": self.position} if form == "position" else {}
        fields = {"failure": AT_ONCE} | fields
        return Routed(handler("table", **calls, **position, **fields))


def down(after: float = 0.0) -> Unavailable:
    return Unavailable("the database restarts", retry_after=after)
