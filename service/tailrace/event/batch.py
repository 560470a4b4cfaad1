"""One reply as a batch of undecoded events, and its slices.

Decoded, a batch of 16 MB would take many times that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, overload

from bson.timestamp import Timestamp

from tailrace.event.change_event import ChangeEvent
from tailrace.event.document_key import Keys
from tailrace.event.layout import changed_at, cluster_time, operation_type, parts, resume_token
from tailrace.event.survey import survey
from tailrace.model.token import ResumeToken

SLICE = 64
"""The number of events that a worker takes at once, and that finish together in the watermark.
Handlers of sequences take more."""


@dataclass(frozen=True, slots=True)
class _RawEvents:
    """Undecoded events: event ``i`` is ``buffer[bounds[2 * i] : bounds[2 * i + 1]]``."""

    buffer: bytes
    bounds: Sequence[int]

    def __len__(self) -> int:
        return len(self.bounds) // 2

    @property
    def size(self) -> int:
        """Bytes from the first event's start to the last one's end, as the byte budget counts."""
        return self.bounds[-1] - self.bounds[0] if self.bounds else 0

    def raw(self) -> Iterator[bytes]:
        """Each event's BSON document, copied on demand."""
        buffer, bounds = self.buffer, iter(self.bounds)
        return (buffer[begin:end] for begin, end in zip(bounds, bounds, strict=True))

    def events(self) -> list[ChangeEvent]:
        """The events; each decodes its fields on demand."""
        return list(map(ChangeEvent, repeat(self.buffer), self.bounds[::2]))

    def part(self, first: int, end: int) -> Slice:
        """The events from ``first`` up to, but not including, ``end``, as far as they exist."""
        return Slice(self.buffer, self.bounds[2 * first : 2 * end])


@dataclass(frozen=True, slots=True)
class Slice(_RawEvents):
    """Consecutive events of a batch. A batch's bytes live as long as any of its slices.

    ``shared``: what handlers of the scope have made of its events, see :meth:`ChangeEvent.keep`.
    ``keys``: of its events, if those handlers share them.
    """

    shared: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    keys: Keys = field(default_factory=dict, compare=False, repr=False)

    def events(self, *, several: bool = False) -> list[ChangeEvent]:
        """The events. ``several``: other handlers will soon need their keys, too."""
        keys = self.keys if several or self.keys else None
        starts, shared = self.bounds[::2], self.shared
        return list(map(ChangeEvent, repeat(self.buffer), starts, repeat(shared), repeat(keys)))

    def last(self) -> LastEvent:
        """The last event's token, time and type for the watermark, without decoding the event."""
        return _read_last(self.buffer, self.bounds[-2])

    def changed_at(self) -> tuple[float, float] | None:
        """When the first and the last event happened, as Unix times; ``None`` if they do not
        say."""
        first = last = changed_at(parts(self.buffer, self.bounds[0]))
        if len(self.bounds) > 2:
            last = changed_at(parts(self.buffer, self.bounds[-2]))
        return None if first is None or last is None else (first, last)


class Events(Sequence[ChangeEvent]):
    """The events of several slices, created on each access."""

    __slots__ = ("_count", "_slices")

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self._count = sum(map(len, slices))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ChangeEvent]:
        return chain.from_iterable(slice_.events() for slice_ in self._slices)

    @overload
    def __getitem__(self, index: int) -> ChangeEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[ChangeEvent]: ...
    def __getitem__(self, index: int | slice) -> ChangeEvent | list[ChangeEvent]:
        if index in (0, -1) and self._slices:
            slice_ = self._slices[index]
            return ChangeEvent(slice_.buffer, slice_.bounds[0 if index == 0 else -2], slice_.shared)
        return list(self)[index]

    def raw(self) -> Iterator[bytes]:
        """Each event's BSON document, copied on demand, without creating an event."""
        return chain.from_iterable(slice_.raw() for slice_ in self._slices)


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The token, time and type of one event, read from its raw bytes."""

    token: ResumeToken | None
    cluster_time: Timestamp | None
    operation: str

    @property
    def time(self) -> Timestamp | None:
        """When the event happened, by its own field or else by its token."""
        return self.cluster_time or (self.token.cluster_time if self.token else None)


@dataclass(frozen=True, slots=True)
class RawBatch(_RawEvents):
    """One reply: its events, and the position of the stream after them.

    ``token`` is the specification's cached token after the whole batch: the post-batch token, else
    the last event's; ``None`` if the server gave neither and the stream started without one.
    ``operation_time`` is the server's time, ``counts`` the result of :meth:`operations`, if known.
    """

    token: ResumeToken | None
    operation_time: Timestamp | None = None
    counts: Mapping[str, int] | None = None

    def slices(self, size: int = SLICE) -> list[Slice]:
        """The batch in pieces of up to ``size`` events."""
        count = len(self)
        if 0 < count <= size:
            return [Slice(self.buffer, self.bounds)]
        return [self.part(first, first + size) for first in range(0, count, size)]

    def operations(self) -> Mapping[str, int]:
        """The number of events of each operation type, read without decoding."""
        return survey(self.buffer, self.bounds).operations if self.counts is None else self.counts

    @property
    def last(self) -> LastEvent | None:
        """The last event's token, time and type; ``None`` for an empty batch."""
        return _read_last(self.buffer, self.bounds[-2]) if self.bounds else None


def _read_last(buffer: bytes, start: int) -> LastEvent:
    found = parts(buffer, start)
    return LastEvent(resume_token(buffer, found), cluster_time(found), operation_type(found))


def join(documents: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Buffer and bounds of a batch from separate BSON documents."""
    marks = pairwise(accumulate(map(len, documents), initial=0))
    return b"".join(documents), list(chain.from_iterable(marks))
