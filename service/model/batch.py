"""The unit that moves: one reply of a cursor, cut into chunks.

A batch keeps the reply's bytes as they came and knows where each event begins. Nothing is decoded
here until somebody asks, and then 64 events in one call: cheaper per event than one by one, and
flat in memory where a decoded 16 MB reply would not be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import bson
from bson.timestamp import Timestamp

from service.model.bson_walk import (
    DOCUMENT,
    INT32,
    STRING,
    TIMESTAMP,
    UINT64,
    document_at,
    elements,
    string_at,
)
from service.model.event import CODEC, ChangeEvent
from service.model.token import ResumeToken

CHUNK = 64
"""Events that are decoded in one call and finished together in the watermark."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive events of a batch: ``bounds[i]`` to ``bounds[i + 1]`` is an array element.

    ``buffer`` belongs to the batch; the bytes live as long as any of its chunks does.
    """

    buffer: bytes
    bounds: Sequence[int]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def size(self) -> int:
        """Raw bytes of its events."""
        return self.bounds[-1] - self.bounds[0]

    def raw(self) -> Iterator[bytes]:
        """Each event's BSON document, not decoded."""
        for start, end in pairwise(self.bounds):
            yield self.buffer[self.buffer.index(0, start + 1) + 1 : end]

    def events(self) -> list[ChangeEvent]:
        """The events, decoded in one call.

        The slice of the reply's array, with a length before and a zero behind, is itself a
        document: the codec decodes all of them without another loop in Python.
        """
        start, end = self.bounds[0], self.bounds[-1]
        length = (end - start + 5).to_bytes(4, "little")
        wrapped = b"".join((length, self.buffer[start:end], b"\0"))
        documents = bson.decode(wrapped, CODEC).values()
        return [
            ChangeEvent(self.buffer, begin, stop, document)
            for begin, stop, document in zip(self.bounds, self.bounds[1:], documents, strict=False)
        ]

    def undecoded(self) -> list[ChangeEvent]:
        """The events; each decodes itself if it is asked for a field."""
        buffer, bounds = self.buffer, self.bounds
        return [ChangeEvent(buffer, begin, stop) for begin, stop in pairwise(bounds)]

    def last(self) -> LastEvent:
        """What the watermark needs of the last event, without decoding it."""
        return _read_last(self.buffer, self.bounds[-2])


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The token, time and type of one event, read from its raw bytes."""

    token: ResumeToken | None
    cluster_time: Timestamp | None
    operation: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One reply: its events and where the stream stands behind them.

    ``token`` is the cached token of the specification after the whole batch has been returned:
    the post-batch token if there is one, else the last event's; ``None`` only where the server
    gave neither and the stream began with none. ``operation_time`` is the server's own time.
    """

    buffer: bytes
    bounds: Sequence[int]
    token: ResumeToken | None
    operation_time: Timestamp | None = None

    def __len__(self) -> int:
        return max(len(self.bounds) - 1, 0)

    @property
    def size(self) -> int:
        """Raw bytes of its events: what the byte budget counts."""
        return self.bounds[-1] - self.bounds[0] if len(self) else 0

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """The batch in pieces of up to ``size`` events."""
        for first in range(0, len(self), size):
            yield Chunk(self.buffer, self.bounds[first : first + size + 1])

    def events(self) -> Iterator[ChangeEvent]:
        """Every event in order."""
        for chunk in self.chunks():
            yield from chunk.events()

    def operations(self) -> Counter[str]:
        """How many events there are of each operation type, read without decoding."""
        buffer, bounds = self.buffer, self.bounds
        counts: Counter[str] = Counter()
        for begin in bounds[:-1]:
            counts[_operation(buffer, buffer.index(0, begin + 1) + 1)] += 1
        return counts

    @property
    def last(self) -> LastEvent | None:
        """The last event's token, time and type; ``None`` for an empty batch."""
        return _read_last(self.buffer, self.bounds[-2]) if len(self) else None

    def token_after(self, index: int) -> ResumeToken | None:
        """The cached token of the specification once event ``index`` has been returned."""
        if index == len(self) - 1:
            return self.token
        if not 0 <= index < len(self):
            raise IndexError(f"no event {index} among {len(self)}")
        return _read_last(self.buffer, self.bounds[index]).token

    @property
    def invalidates(self) -> bool:
        """Whether it ends with an invalidate event: the server sends nothing behind one."""
        last = self.last
        return last is not None and last.operation == "invalidate"


def _read_last(buffer: bytes, element: int) -> LastEvent:
    start = buffer.index(0, element + 1) + 1
    fields = elements(buffer, start)
    kind, at = fields.get(b"_id", (0, 0))
    token = ResumeToken(document_at(buffer, at)) if kind == DOCUMENT else None
    kind, at = fields.get(b"clusterTime", (0, 0))
    time = None
    if kind == TIMESTAMP:
        value = UINT64(buffer, at)[0]
        time = Timestamp(value >> 32, value & 0xFFFFFFFF)
    kind, at = fields.get(b"operationType", (0, 0))
    return LastEvent(token, time, string_at(buffer, at) if kind == STRING else "")


def _operation(buffer: bytes, start: int) -> str:
    """The operation type of the event at ``start``: quick where mongod puts it, behind ``_id``."""
    if buffer[start + 4 : start + 9] == b"\x03_id\0":
        at = start + 9 + INT32(buffer, start + 9)[0]
        if buffer[at : at + 15] == b"\x02operationType\0":
            return string_at(buffer, at + 15)
    kind, at = elements(buffer, start).get(b"operationType", (0, 0))
    return string_at(buffer, at) if kind == STRING else ""


def join(documents: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Buffer and bounds of a batch from separate BSON documents (joined fragments, tests)."""
    parts: list[bytes] = []
    bounds = [0]
    for index, document in enumerate(documents):
        parts.append(b"\x03%d\0%b" % (index, document))
        bounds.append(bounds[-1] + len(parts[-1]))
    return b"".join(parts), bounds


def of_documents(documents: Sequence[dict[str, Any]], token: ResumeToken | None = None) -> Batch:
    """A batch of decoded events: what tests of the packages above start from."""
    buffer, bounds = join([bson.encode(document) for document in documents])
    batch = Batch(buffer, bounds, token)
    last = batch.last
    return Batch(buffer, bounds, token or (last.token if last else None))
