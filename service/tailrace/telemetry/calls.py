"""A handler with spans: one for each call with a batch, and for a few calls with one event."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, Tracer, TraceState
from opentelemetry.util.types import AttributeValue

from tailrace.engine import Handler, PerEvent, RunIdentity
from tailrace.engine.ports import Call, PerBatch
from tailrace.event import ChangeEvent
from tailrace.event.trace_context import TraceField
from tailrace.model import Scope
from tailrace.telemetry.spans import current

EVENTS_A_SECOND = 10
"""Of how many calls with one event a second a handler has spans: a span costs more than a call."""
MOST_LINKS = 128
"""The SDK keeps so many links of a span (OTEL_SPAN_LINK_COUNT_LIMIT)."""

Attributes = dict[str, AttributeValue]


class Links:
    """The traces that documents of a scope carry, as links of a span."""

    def __init__(self, scope: Scope) -> None:
        self._field = TraceField(scope.trace, scope.name) if scope.trace else None

    def of(self, events: Sequence[ChangeEvent]) -> Sequence[Link]:
        """A link to each trace that the first events carry."""
        if self._field is None:
            return ()
        found = [self._field.of(event) for event in events[:MOST_LINKS]]
        links = []
        for context in dict.fromkeys(each for each in found if each is not None):
            _, trace_id, span_id, flags = context.traceparent.split("-")[:4]
            links.append(
                Link(
                    SpanContext(
                        int(trace_id, 16),
                        int(span_id, 16),
                        is_remote=True,
                        trace_flags=TraceFlags(int(flags, 16)),
                        trace_state=TraceState.from_header([context.tracestate]),
                    )
                )
            )
        return links


def traced(handler: Handler, scope: Scope, tracer: Tracer) -> Handler:
    """The handler with spans of its calls."""
    about: Attributes = {
        "messaging.system": "mongodb",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": scope.name,
        "messaging.consumer.group.name": handler.name,
        "tailrace.scope": scope.name,
        "tailrace.handler": handler.name,
    }
    name = f"process {handler.name}"
    calls, links = handler.calls, Links(scope)
    if isinstance(calls, PerEvent):
        of_event = _Traced(tracer, name, about, calls.call, links)
        return replace(handler, calls=replace(calls, call=_sampled(of_event.event, calls.call)))
    commit, on_ddl = handler.commit, calls.on_ddl
    if commit is not None:
        commit = replace(commit, call=_commit(tracer, f"commit {handler.name}", about, commit.call))
    if on_ddl is not None:
        on_ddl = _Traced(tracer, name, about, on_ddl, links).event
    return replace(
        handler, calls=_batches(calls, tracer, name, about, on_ddl, links), commit=commit
    )


@dataclass(frozen=True, slots=True)
class _Traced:
    """Calls with one event, each with a span."""

    tracer: Tracer
    name: str
    about: Attributes
    call: Call
    links: Links

    async def event(self, event: ChangeEvent, identity: RunIdentity) -> Any:
        attributes = {**self.about, **_of([event])}
        links = self.links.of([event])
        with current(self.tracer, self.name, attributes, SpanKind.CONSUMER, links):
            return await self.call(event, identity)


def _sampled(traced: Call, plain: Call) -> Call:
    """Calls ``traced`` for so many events a second, and for the others ``plain``."""
    left, until, clock = 0, 0.0, time.monotonic

    def call(event: ChangeEvent, identity: RunIdentity) -> Any:
        # Not a coroutine of its own, which every event would pay for.
        nonlocal left, until
        if not left:
            now = clock()
            if now < until:
                return plain(event, identity)
            left, until = EVENTS_A_SECOND, now + 1.0
        left -= 1
        return traced(event, identity)

    return call


def _batches(
    calls: PerBatch,
    tracer: Tracer,
    name: str,
    about: Attributes,
    on_ddl: Call | None,
    links: Links,
) -> PerBatch:
    """A call gets what it would get, and with it what the span says of the events."""
    plain, call = calls.payload, calls.call

    def payload(events: Sequence[ChangeEvent]) -> tuple[Any, Attributes, Sequence[Link]]:
        attributes = {**about, **_of(events[:1]), "messaging.batch.message_count": len(events)}
        return plain(events), attributes, links.of(events)

    async def traced(payload: tuple[Any, Attributes, Sequence[Link]], identity: RunIdentity) -> Any:
        events, attributes, linked = payload
        with current(tracer, name, attributes, SpanKind.CONSUMER, linked):
            return await call(events, identity)

    return replace(calls, call=traced, payload=payload, on_ddl=on_ddl)


def _commit(
    tracer: Tracer, name: str, about: Attributes, call: Callable[[RunIdentity], Any]
) -> Callable[[RunIdentity], Any]:
    async def traced(identity: RunIdentity) -> Any:
        with current(tracer, name, about, SpanKind.CONSUMER):
            return await call(identity)

    return traced


def _of(events: Sequence[ChangeEvent]) -> Attributes:
    """Where the first event is from."""
    for event in events:
        if (ns := event.ns) is not None:
            of: Attributes = {"db.system.name": "mongodb", "db.namespace": ns.db}
            return {**of, "db.collection.name": ns.coll} if ns.coll else of
    return {}
