"""The span of changes that come again in one course, and how many the handler has."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bson.timestamp import Timestamp

from tailrace.engine.plan.router import Routed
from tailrace.engine.ports import Call, Handler, PerEvent, RunIdentity
from tailrace.event import ChangeEvent
from tailrace.event.key import Key, read_key
from tailrace.model import Position, PositionKind
from tailrace.model.checkpoint import replay_to
from tailrace.model.replay import Replay, ReplayState
from tailrace.model.subscription import Subscription
from tailrace.stream import ChangeStreamOptions


@dataclass(slots=True, eq=False)
class ReplayedSpan:
    """A ``replay`` as it goes on. ``handled``: how many changes the handler has."""

    replay: Replay
    handled: int = field(init=False)
    _keys: Sequence[Key] = field(init=False)

    def __post_init__(self) -> None:
        self.handled = self.replay.handled
        self._keys = [read_key(text) for text in self.replay.request.keys]

    def now(self, state: ReplayState = ReplayState.RUNNING) -> Replay:
        """The record of the replay, with what the handler has."""
        return replace(self.replay, handled=self.handled, state=state)

    def beginning(self, fingerprint: str) -> Subscription:
        """Where it begins."""
        position = Position(PositionKind.IDLE, None, None, self.replay.request.since)
        return Subscription(position, fingerprint, replay=self.now())

    def is_over(self, time: Timestamp | None, *, exhausted: bool) -> bool:
        """Whether a stream that was read up to this time has passed the end.

        Several changes may have the time of the end: they are read when the server is
        ``exhausted``, and has sent a reply without changes.
        """
        end = self.replay.request.until
        return time is not None and (time > end or (time == end and exhausted))

    def options(self, options: ChangeStreamOptions) -> ChangeStreamOptions:
        """Lets the server leave out other documents. Its comparison may find more: a collation."""
        if not self._keys:
            return options
        of_keys = [{"documentKey._id": {"$eq": each.value}} for each in self._keys]
        match = {"$match": {"$or": [*of_keys, {"operationType": "invalidate"}]}}
        return replace(options, pipeline=(match, *options.pipeline))

    def routed(self, to: Routed) -> Routed:
        """The subscription of the replay: what a handler wants of the span."""
        wants = to.wants

        def of_span(event: ChangeEvent) -> bool:
            return self._has(event) and (wants is None or wants(event))

        return Routed(self._counted(to.handler), of_span, subscription=replay_to(to.name))

    def _has(self, event: ChangeEvent) -> bool:
        request, time, ns = self.replay.request, event.cluster_time, event.ns
        if time is not None and time > request.until:
            return False
        if self._keys and not any(each.is_of(event.key) for each in self._keys):
            return False
        names = request.collections
        return not names or (ns is not None and (ns.coll in names or str(ns) in names))

    def _counted(self, handler: Handler) -> Handler:
        """Counts the changes that the handler has taken."""

        def of_one(call: Call) -> Call:
            async def counted(event: ChangeEvent, identity: RunIdentity) -> Any:
                result = await call(event, identity)
                self.handled += 1
                return result

            return counted

        async def of_several(counted: tuple[int, Any], identity: RunIdentity) -> Any:
            count, payload = counted
            result = await calls.call(payload, identity)
            self.handled += count
            return result

        calls = handler.calls
        if isinstance(calls, PerEvent):
            return replace(handler, calls=replace(calls, call=of_one(calls.call)))
        payload, on_ddl = calls.payload, calls.on_ddl
        some = replace(
            calls,
            call=of_several,
            payload=lambda events: (len(events), payload(events)),
            on_ddl=of_one(on_ddl) if on_ddl is not None else None,
        )
        return replace(handler, calls=some)
