"""The trace that changed a document, as W3C Trace Context in a field of it.

Source: https://www.w3.org/TR/trace-context/
"""

import re
from typing import NamedTuple

import structlog

from tailrace.event.bson import DOCUMENT, NULL, STRING, walk
from tailrace.event.change_event import ChangeEvent

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,200})?"
)
"""Versions later than 00 may have more after the flags (3.2.2)."""
_TRACESTATE = re.compile(r"[ -~]{1,512}")


class TraceContext(NamedTuple):
    """The position of a request in a trace, and what vendors add to it (empty: nothing)."""

    traceparent: str
    tracestate: str = ""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """As headers of a message or a request."""
        named = [("traceparent", self.traceparent)]
        return [*named, ("tracestate", self.tracestate)] if self.tracestate else named


class TraceField:
    """Reads the context from the field at a dotted ``path`` of the documents of a scope.

    The field holds a ``traceparent`` as text, or a document with ``traceparent`` and, if there is
    one, ``tracestate``. Whatever else it holds is ignored, which the log says once.
    """

    def __init__(self, path: str, scope: str) -> None:
        self.path = path
        self._scope = scope
        self._parts = path.encode().split(b".")
        self._path = path.encode()
        self._said = False

    def of(self, event: ChangeEvent) -> TraceContext | None:
        """The context in the document after the change; of an update that comes without it, in the
        fields that it sets."""
        document = event.field_bytes("fullDocument")
        if document is not None:
            return self._read(document, self._parts)
        update = event.field_bytes("updateDescription")
        fields = None if update is None else _field(update, b"updatedFields")
        if fields is None or fields[0] != DOCUMENT:
            return None
        return self._read(fields[1], [self._path])

    def _read(self, document: bytes, path: list[bytes]) -> TraceContext | None:
        kind, value = DOCUMENT, document
        for name in path:
            found = _field(value, name) if kind == DOCUMENT else None
            if found is None:
                return None
            kind, value = found
        if kind == NULL:
            return None
        state = b""
        if kind == DOCUMENT:
            _, state = _field(value, b"tracestate") or (STRING, b"")
            kind, value = _field(value, b"traceparent") or (kind, value)
        traceparent = _text(value) if kind == STRING else ""
        if not _TRACEPARENT.fullmatch(traceparent) or (
            traceparent[:2] == "00" and len(traceparent) != 55
        ):
            self._ignore()
            return None
        tracestate = _text(state)
        return TraceContext(traceparent, tracestate if _TRACESTATE.fullmatch(tracestate) else "")

    def _ignore(self) -> None:
        if not self._said:
            self._said = True
            structlog.get_logger().warning(
                "trace_context.ignored",
                scope=self._scope,
                field=self.path,
                reason="a document has a value there that is no traceparent of W3C Trace Context; "
                "others are not reported",
            )


def _field(document: bytes, name: bytes) -> tuple[int, bytes] | None:
    """The type and the bytes of a field; ``None`` if there is none."""
    if name not in document:
        return None
    for found, kind, at, end in walk(document, 0):
        if found == name:
            return kind, document[at:end]
    return None


def _text(value: bytes) -> str:
    """The text of a value of BSON's type string."""
    return value[4:-1].decode("utf-8", "replace")
