"""One handler's part in one run: its deliveries, its lane, and its watermark."""

from dataclasses import dataclass, field, replace

import anyio

from tailrace.engine.final_position import MOST_NOTED, final_position, reached_position
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.replayed_span import ReplayedSpan
from tailrace.model import Position, PositionKind
from tailrace.model.subscription import Subscription


@dataclass(slots=True, eq=False)
class HandlerRun:
    """``name`` is empty, and there is no ``lane``, in a scope without handlers.

    ``stored``: the position that the store has; ``None`` if what the run begins with is not
    stored. ``fingerprint``: of the pipeline to which the tokens of the first position belong;
    empty: the current one.
    """

    name: str
    watermark: Watermark
    subscription: Subscription
    stored: Position | None = None
    delivery: Delivery | None = None
    lane: Lane | None = None
    fingerprint: str = ""
    replay: ReplayedSpan | None = None
    begun: anyio.Event = field(default_factory=anyio.Event)
    """Set once the handler may be called, or has left before."""
    started: bool = False
    """Whether the lane has its task."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when the lane has ended, or the handler has left."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when a handler that has left has ended its calls, and its position is saved."""
    failure: Exception | None = None
    """Why it has left, if a call failed."""
    joining: bool = True
    """Whether another run still handles what comes before this one."""
    left: bool = False
    """Whether the run feeds it no more."""
    _first: Position = field(init=False)
    _seen: Position | None = None

    def __post_init__(self) -> None:
        self._first = self.watermark.position

    def begin(self) -> None:
        """The handler may be called from now on."""
        if self.delivery is not None and self.replay is None:
            self.watermark.latency = self.delivery.recorder.latency
        self.joining = False
        self.begun.set()

    def rest(self) -> None:
        """The stream has nothing more: tells the handler, if it has handled everything."""
        if self.delivery is not None and self.watermark.empty and not self.joining:
            self.delivery.rest()

    def latest(self, *, first: bool) -> Position | None:
        """What is handled, if it has to be saved: by whole places, as long as they are finished one
        after another. The start position, which nothing has confirmed yet, only with ``first``."""
        before, self._seen = self._seen, self.watermark.position
        position = self._seen
        if position is before and self.lane is not None:
            position = reached_position(self.watermark, self.lane)
        return position if first or self.is_confirmed(position) else None

    def is_confirmed(self, position: Position) -> bool:
        """Whether it is not merely the start position, which nothing has confirmed yet."""
        return position is not self._first

    def fingerprint_of(self, current: str) -> str:
        """Of the pipeline to which the tokens of its position belong."""
        return current if self.watermark.follows else self.fingerprint or current

    def subscription_at(self, position: Position, fingerprint: str) -> Subscription:
        """What to store of it. ``fingerprint``: of the current pipeline."""
        return replace(
            self.subscription,
            position=position,
            fingerprint=self.fingerprint_of(fingerprint),
            halted="",
            replay=self.replay.now() if self.replay is not None else None,
        )

    def final(self, handlers: int = 1) -> Position:
        """What is handled when the handler's part ends, to the single event."""
        if self.lane is None or self.joining:
            return self.watermark.position
        return final_position(self.watermark, self.lane, MOST_NOTED // max(handlers, 1))

    def join(self, former: "HandlerRun") -> None:
        """The handler's own stream has handled everything up to where this one begins."""
        position, at = former.final(), self.watermark.position
        if self.is_confirmed(at):
            ended = at.kind is PositionKind.INVALIDATE
            position = position.after_bookmark(at.high_water, at.cluster_time, invalidated=ended)
        self.watermark.position = self._first = position
        self.stored, self.fingerprint = former.stored, former.fingerprint
        self.watermark.follows = self.watermark.follows or former.watermark.follows
        if self.delivery is not None and former.delivery is not None:
            self.delivery.position.goes_on_from(former.delivery.position)
        self.begin()

    @property
    def invalidated(self) -> bool:
        """Whether the handler has come to an invalidate: no bookmark before its first event."""
        at, first = self.watermark.position, self._first
        return at.kind is PositionKind.INVALIDATE and at.event_token != first.event_token

    @property
    def can_leave(self) -> bool:
        """Whether it is called now: else nothing would say that its last call has ended."""
        return self.started and not (self.joining or self.over.is_set())

    def leave(self) -> None:
        """Begins no further call; what the handler has not begun leaves memory."""
        self.left = True
        if self.delivery is not None:
            self.delivery.try_one_by_one()
        if self.lane is not None:
            self.lane.halt()
            self.lane.drop()
            self.watermark.drop_after(self.lane.opened)
        self.begun.set()
        self.over.set()
