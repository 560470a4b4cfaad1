"""A handler with spans of its calls and commits."""

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
from tailrace.telemetry.spans import SpanSeries

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
        "messaging.destination.name": scope.name,
        "messaging.consumer.group.name": handler.name,
    }
    spans = _Calls(
        SpanSeries(tracer, SpanKind.CONSUMER),
        f"process {handler.name}",
        {**about, **_operation("process", "process")},
        Links(scope),
    )
    calls, commit = handler.calls, handler.commit
    if isinstance(calls, PerEvent):
        return replace(handler, calls=replace(calls, call=spans.with_event(calls.call)))
    if commit is not None:
        attributes = {**about, **_operation("settle", "commit")}
        commits = SpanSeries(tracer, SpanKind.CONSUMER)
        call = _of_commit(commit.call, commits, f"commit {handler.name}", attributes)
        commit = replace(commit, call=call)
    return replace(handler, calls=_of_batches(calls, spans), commit=commit)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The spans of a handler's calls."""

    series: SpanSeries
    name: str
    about: Attributes
    links: Links

    async def with_batch(
        self, call: Call, given: Any, events: Sequence[ChangeEvent], identity: RunIdentity
    ) -> Any:
        """Makes a call that has a span if there may be one, or if it fails."""
        attributes = {**self._of(events), "messaging.batch.message_count": len(events)}
        with self.series.current(self.name, attributes, lambda: self.links.of(events)):
            return await call(given, identity)

    def with_event(self, plain: Call) -> Call:
        """Calls with one event. Those beyond the limit have no span even if they fail: a coroutine
        around each of them costs more than many a handler."""
        series, clock = self.series, self.series.clock

        def call(event: ChangeEvent, identity: RunIdentity) -> Any:
            if clock() < series.full_until:  # as allows, which takes as long as all this
                return plain(event, identity)
            return with_span(event, identity) if series.allows() else plain(event, identity)

        async def with_span(event: ChangeEvent, identity: RunIdentity) -> Any:
            with self.series.recorded(self.name, self._of([event]), self.links.of([event])):
                return await plain(event, identity)

        return call

    def _of(self, events: Sequence[ChangeEvent]) -> Attributes:
        """Says where the first event is from."""
        ns = events[0].ns
        if ns is None:
            return self.about
        of: Attributes = {**self.about, "db.namespace": ns.db}
        return {**of, "db.collection.name": ns.coll} if ns.coll else of


def _of_batches(calls: PerBatch, spans: _Calls) -> PerBatch:
    """A call gets what it would get, and the events beside it, for its span."""
    plain, call, on_ddl = calls.payload, calls.call, calls.on_ddl

    def payload(events: Sequence[ChangeEvent]) -> tuple[Any, Sequence[ChangeEvent]]:
        return plain(events), events

    def with_span(payload: tuple[Any, Sequence[ChangeEvent]], identity: RunIdentity) -> Any:
        given, events = payload
        return spans.with_batch(call, given, events, identity)

    if on_ddl is not None:
        on_ddl = spans.with_event(on_ddl)
    return replace(calls, call=with_span, payload=payload, on_ddl=on_ddl)


def _of_commit(
    plain: Callable[[RunIdentity], Any], commits: SpanSeries, name: str, about: Attributes
) -> Callable[[RunIdentity], Any]:
    async def with_span(identity: RunIdentity) -> Any:
        with commits.current(name, about):
            return await plain(identity)

    return with_span


def _operation(kind: str, name: str) -> Attributes:
    return {"messaging.operation.type": kind, "messaging.operation.name": name}
