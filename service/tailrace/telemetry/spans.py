"""Makes spans with the names and attributes of OpenTelemetry's semantic conventions.

Sources: https://opentelemetry.io/docs/specs/semconv/database/mongodb/ and
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/. A span holds no value of a
document: of an error it has the class, a code and where it was raised, because its text may quote
one. The log has the text.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import anyio
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from tailrace.errors import CommandFailed
from tailrace.masking import shortened

Attributes = Mapping[str, AttributeValue]

SPANS_A_SECOND = 25
"""Of a stream, of a handler and so on: 150 µs each. A reply of 1,000 events, whose bytes a handler
takes, costs the daemon a millisecond."""
_MOST_FRAMES = 16
_LONGEST_TRACEBACK = 4000


def command(
    scope: str, purpose: str, name: str, database: str, collection: str
) -> tuple[str, dict[str, AttributeValue]]:
    """The name and the attributes of the span of a command to MongoDB."""
    attributes: dict[str, AttributeValue] = {
        "db.system.name": "mongodb",
        "db.operation.name": name,
        "db.namespace": database,
        "tailrace.scope": scope,
        "tailrace.purpose": purpose,
    }
    if collection:
        attributes["db.collection.name"] = collection
    return f"{name} {collection or database}", attributes


def fail(span: Span, error: BaseException) -> None:
    """Records an error on the span, without its text."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        span.set_attribute("tailrace.cancelled", True)
        return
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    frames = "".join(traceback.format_tb(error.__traceback__, -_MOST_FRAMES))
    stack = shortened(frames, _LONGEST_TRACEBACK)
    span.add_event("exception", {"exception.type": name, "exception.stacktrace": stack})
    span.set_attribute("error.type", name)
    if isinstance(error, CommandFailed):
        span.set_attribute("db.response.status_code", str(error.code))
    span.set_status(Status(StatusCode.ERROR))


class SpanSeries:
    """Spans of one thing that happens again and again, such as the replies of a stream: at most
    :data:`SPANS_A_SECOND`, and one of each failure. There may be none until ``full_until``, by
    ``clock``."""

    def __init__(self, tracer: Tracer, kind: SpanKind) -> None:
        self._tracer = tracer
        self._kind = kind
        self.clock, self.full_until = time.monotonic, 0.0
        self._left, self._until = 0, 0.0

    def allows(self) -> bool:
        """Whether there may be one now, which is counted."""
        now = self.clock()
        if now < self.full_until:
            return False
        if now >= self._until:
            self._left, self._until = SPANS_A_SECOND, now + 1.0
        self._left -= 1
        if not self._left:
            self.full_until = self._until
        return True

    def begin(
        self, name: str, attributes: Attributes, began: int, links: Sequence[Link] = ()
    ) -> Span:
        """A span that is not current. ``began``: the Unix time in ns."""
        return self._tracer.start_span(
            name, kind=self._kind, attributes=attributes, links=links, start_time=began
        )

    @contextmanager
    def current(
        self,
        name: str,
        attributes: Attributes,
        links: Callable[[], Sequence[Link]] = tuple,
    ) -> Iterator[Span]:
        """A span that is current in the block, if there may be one. An error that leaves the block
        is recorded in any case, if need be on a span that is made then."""
        if self.allows():
            with self.recorded(name, attributes, links()) as span:
                yield span
            return
        began = time.time_ns()
        try:
            yield INVALID_SPAN
        except BaseException as error:
            span = self.begin(name, attributes, began, links())
            fail(span, error)
            span.end()
            raise

    @contextmanager
    def recorded(
        self, name: str, attributes: Attributes, links: Sequence[Link] = ()
    ) -> Iterator[Span]:
        """A span that is current in the block. An error that leaves the block is recorded."""
        with self._tracer.start_as_current_span(
            name,
            kind=self._kind,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                fail(span, error)
                raise
