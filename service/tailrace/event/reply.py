"""One parser for the replies of all commands that return a cursor: documents are not decoded."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.errors import ConnectionFailed
from tailrace.event import bson
from tailrace.event.bson import DOCUMENT, EMPTY_DOCUMENT, INT32, INT64, UINT32, walk
from tailrace.event.survey import Survey, survey_array
from tailrace.model import ResumeToken


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply to ``aggregate``, ``find`` or ``getMore``, and what the next ``getMore`` needs.

    Document ``i`` of the batch is ``buffer[bounds[2 * i] : bounds[2 * i + 1]]``. A reply of a
    change stream has a ``post_batch_token``, and a ``survey`` of its events.
    """

    buffer: bytes
    bounds: Sequence[int]
    cursor_id: int = 0
    namespace: str = ""
    operation_time: Timestamp | None = None
    post_batch_token: ResumeToken | None = None
    survey: Survey | None = None

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def documents(self) -> list[bytes]:
        """Those of the batch, as BSON."""
        buffer, bounds = self.buffer, iter(self.bounds)
        return [buffer[begin:end] for begin, end in zip(bounds, bounds, strict=True)]

    @property
    def closed(self) -> bool:
        """Whether the server has closed the cursor."""
        return self.cursor_id == 0

    @property
    def collection(self) -> str:
        """The cursor's collection, which ``getMore`` and ``killCursors`` name."""
        return self.namespace.partition(".")[2]


def read_reply(raw: bytes, *, of_events: bool = False) -> Reply:
    """Reads one reply; ``of_events``: of a change stream, with the survey of its events.

    Raises ``ConnectionFailed`` for one without a cursor: a broken server.
    """
    try:
        return _read(raw, of_events=of_events)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise ConnectionFailed(f"the server's reply is not a cursor: {error!r}") from error


def _read(raw: bytes, *, of_events: bool) -> Reply:
    top = bson.elements(raw, 0)
    kind, at = top[b"cursor"]
    if kind != DOCUMENT:
        raise ValueError("cursor is not a document")
    cursor = bson.elements(raw, at)
    kind, batch = cursor.get(b"nextBatch") or cursor[b"firstBatch"]
    if kind != bson.ARRAY:
        raise ValueError("the batch is not an array")
    kind, at = cursor[b"id"]
    if kind not in (bson.INT32_TYPE, bson.INT64_TYPE):
        raise ValueError("the cursor's id is not a whole number")
    cursor_id: int = INT64(raw, at)[0] if kind == bson.INT64_TYPE else INT32(raw, at)[0]
    kind, at = cursor.get(b"ns", (0, 0))
    namespace = bson.string_at(raw, at) if kind == bson.STRING else ""
    kind, at = cursor.get(b"postBatchResumeToken", (0, 0))
    token = ResumeToken(bson.document_at(raw, at)) if kind == DOCUMENT else None
    bounds, survey = survey_array(raw, batch) if of_events else (_bounds(raw, batch), None)
    kind, at = top.get(b"operationTime", (0, 0))
    time = bson.timestamp_at(raw, at) if kind == bson.TIMESTAMP else None
    return Reply(raw, bounds, cursor_id, namespace, time, token, survey)


def _bounds(buffer: bytes, start: int) -> Sequence[int]:
    """The bounds of the documents in the array at ``start``.

    The name of an element is its index as text, so its length is known. A document's length is read
    as unsigned, so a wrong length never leads backwards.
    """
    position, end = start + 4, start + INT32(buffer, start)[0] - 1
    bounds: list[int] = []
    append, digits, next_digits, number = bounds.append, 3, 10, 0
    while position < end:
        if number == next_digits:
            digits, next_digits = digits + 1, next_digits * 10
        if buffer[position] != DOCUMENT:
            break
        at = position + digits
        append(at)
        position = at + UINT32(buffer, at)[0]
        append(position)
        number += 1
    if position != end or (bounds and bounds[-1] - bounds[-2] < EMPTY_DOCUMENT):
        return _walked(buffer, start)
    return bounds


def _walked(buffer: bytes, start: int) -> Sequence[int]:
    """The same by walking, which says what is wrong."""
    bounds: list[int] = []
    for _, kind, begin, end in walk(buffer, start):
        if kind != DOCUMENT:
            raise ValueError("the batch holds something that is not a document")
        bounds += begin, end
    return bounds
