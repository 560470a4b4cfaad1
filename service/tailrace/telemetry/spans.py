"""Makes spans with the names and attributes of OpenTelemetry's semantic conventions.

Sources: https://opentelemetry.io/docs/specs/semconv/database/mongodb/ and
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/. A span holds no value of a
document: of an error it has the class, a code and where it was raised, because its text may quote
one. The log has the text.
"""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import anyio
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from tailrace.errors import CommandFailed
from tailrace.masking import shortened

Attributes = Mapping[str, AttributeValue]

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


@contextmanager
def current(
    tracer: Tracer,
    name: str,
    attributes: Attributes,
    kind: SpanKind = SpanKind.CLIENT,
    links: Sequence[Link] = (),
) -> Iterator[Span]:
    """A span that is current in the block. An error that leaves the block is recorded."""
    with tracer.start_as_current_span(
        name,
        kind=kind,
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
