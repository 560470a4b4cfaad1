"""How a stream shows the oplog's events: the format of the tokens, the fragments of large events.

The oplog in memory has tokens of version 2, as servers from 6.0 on. An older server makes those of
version 1, and a stream that begins after one makes them up to that place (mongod,
``ChangeStreamEventTransformation::makeResumeToken``). The token of a fragment has its number at the
end (``ResumeToken``, ``fragmentNum``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import bson

from tailrace.event.batch import Slice
from tailrace.event.bson import encoded, spans
from tailrace.event.reply import Reply
from tailrace.testing.entry import OF_DOCUMENTS
from tailrace.testing.stream import reply_of
from tailrace.testing.tokens import integer, is_high_water

_KEY = "46645F69640064"
_AFTER_KEY = len(_KEY) + 24 + 2
_VERSION = slice(18, 22)
_VERSIONS = {1: "2B02", 2: "2B04"}
_INDEX = 28
"""Where the index within a transaction begins."""


def canonical(data: str) -> str:
    """The oplog's own token of an event, of which ``data`` may be a fragment's, or of version 1."""
    data = data[: _VERSION.start] + _VERSIONS[2] + data[_VERSION.stop :]
    key = data.find(_KEY)
    return data if key < 0 else data[: key + _AFTER_KEY] + "04"


def versioned(data: str, version: int) -> str:
    """The token in the format of a version."""
    return data[: _VERSION.start] + _VERSIONS[version] + data[_VERSION.stop :]


def parts_of(token: str, operation: str) -> int:
    """Into how many fragments a server splits an event, if it may: some are large."""
    if operation not in OF_DOCUMENTS:
        return 1
    ordinal = int(token[-28:-4], 16)
    return 2 + ordinal % 4 // 2 if ordinal % 3 == 0 else 1


@dataclass(frozen=True, slots=True)
class _Place:
    """A token that a stream begins after: which version it has, and how many fragments."""

    data: str
    version: int = 2
    fragments: int = 0

    @classmethod
    def of(cls, token: Mapping[str, Any]) -> _Place:
        data = bson.decode(bson.encode(token))["_data"]
        version = 1 if data[_VERSION] == _VERSIONS[1] else 2
        end = data[len(canonical(data)) - 2 : -2]
        known = (number for number in range(9) if integer(number) == end)
        return cls(data, version, next(known, -1) + 1 if end else 0)

    def is_before(self, token: str) -> bool:
        """Whether the transaction's index, or the time, of an event is greater."""
        return token[2:18] > self.data[2:18] or token[_INDEX:] > self.data[_INDEX:]


class ShownEvents:
    """What one stream shows of the replies of a stream in memory.

    ``stage``: its ``$changeStream``. ``version``: of the server's tokens. ``splits``: whether the
    server may split events.
    """

    def __init__(self, stage: Mapping[str, Any], version: int, *, splits: bool) -> None:
        option = next((o for o in ("resumeAfter", "startAfter") if o in stage), None)
        place = _Place.of(stage[option]) if option is not None else None
        self.is_older = place is not None and place.version < version
        """Whether it begins after a token from before an upgrade."""
        if place is not None and is_high_water({"_data": canonical(place.data)}):
            place = replace(place, version=version)
        self._place = place
        self._plain = not splits and version == 2 and (place is None or place.version == 2)
        self._version = version
        self._splits = splits
        self._waiting: deque[bytes] = deque()
        self._skipped = 0
        self._last: Reply | None = None
        self.stage = dict(stage)
        if place is not None and option is not None:
            data = canonical(place.data)
            if 0 < place.fragments < parts_of(data, "insert"):
                # The memory's stream has whole events: it begins before that of the fragment.
                self._skipped, data = place.fragments, data[:-2]
            self.stage[option] = {"_data": data}

    @property
    def begins_within(self) -> bool:
        """Whether it has still to continue an event of which the reader has fragments."""
        return self._skipped > 0

    @property
    def waits(self) -> bool:
        """Whether fragments of the last reply have not been sent."""
        return bool(self._waiting)

    def first(self, reply: Reply) -> Reply:
        """The reply of the aggregate, which has no events."""
        place = self._place
        if place is None or is_high_water({"_data": canonical(place.data)}):
            return self._reply([], reply)
        return reply_of([], place.data, reply.cursor_id, reply.operation_time)

    def next(self, reply: Reply | None, most: int | None) -> Reply:
        """What is sent of the next reply, or of what waits."""
        if reply is not None:
            if self._plain:
                return reply
            self._last = reply
            for raw in Slice(reply.buffer, reply.bounds).raw():
                self._waiting.extend(self._shown(raw))
        assert self._last is not None
        count = len(self._waiting) if most is None else min(most, len(self._waiting))
        return self._reply([self._waiting.popleft() for _ in range(count)], self._last)

    def _reply(self, events: Sequence[bytes], reply: Reply) -> Reply:
        time = reply.operation_time
        if self._waiting:
            return reply_of(events, bson.decode(events[-1])["_id"]["_data"], 1, time)
        assert reply.post_batch_token is not None
        data = reply.post_batch_token.document["_data"]
        if events:
            data = bson.decode(events[-1])["_id"]["_data"]
        elif is_high_water({"_data": data}):
            data = versioned(data, self._version)
        else:
            data = self._token(data)
        return reply_of(events, data, reply.cursor_id, time)

    def _token(self, data: str) -> str:
        """The token of a whole event in this stream."""
        place = self._place
        older = place is not None and not place.is_before(data)
        return versioned(data, place.version if older and place is not None else self._version)

    def _shown(self, raw: bytes) -> Iterator[bytes]:
        fields = {name: raw[begin:end] for name, (_, begin, end) in spans(raw, 0).items()}
        event = bson.decode(raw)
        data = event["_id"]["_data"]
        parts = parts_of(data, event["operationType"]) if self._splits else 1
        if parts == 1:
            yield raw.replace(data.encode(), self._token(data).encode())
            return
        names = [name for name in fields if name != b"_id"]
        size = -(-len(names) // parts)
        for number in range(self._skipped, parts):
            token = f"{data[:-2]}{integer(number)}04"
            split = {"splitEvent": {"fragment": number + 1, "of": parts}}
            some = b"".join(fields[name] for name in names[number * size : (number + 1) * size])
            head = bson.encode({"_id": {"_data": token}})[4:-1] + bson.encode(split)[4:-1]
            yield encoded(head + some)
        self._skipped = 0
