"""Decides when changes and existing documents (the rows of a snapshot) may take their places.

A chunk of documents is read as of a time to which the stream is *caught up*: every event up to that
time has its place on the watermark, and no later event has. So the rows take places after all
changes that they contain, and before all others. While a chunk is read, nothing else takes a place:
replies that come meanwhile wait.
"""

from collections.abc import Sequence

import anyio
from bson.timestamp import Timestamp

from tailrace.engine.position.cluster_time import before
from tailrace.event import RawBatch, Slice
from tailrace.model import ResumeToken


class ReadOrder:
    """Decides who may append places to the watermark: the task that has the ``gate``.

    ``time``: up to where the stream is caught up. It is ``None`` while more events with the time of
    the last place may come. ``start`` is the token with which the stream opened.
    """

    def __init__(self) -> None:
        self.gate = anyio.Condition(anyio.Lock(fast_acquire=True))
        self.start: ResumeToken | None = None
        self._time: Timestamp | None = None

    @property
    def time(self) -> Timestamp | None:
        """The time up to which the stream is caught up; set only by the task that has the gate."""
        return self._time

    @time.setter
    def time(self, time: Timestamp | None) -> None:
        self._time = time
        if time is not None:
            self.gate.notify_all()


def caught_up_to(
    batch: RawBatch, start: ResumeToken | None, *, sharded: bool
) -> tuple[Timestamp | None, bool]:
    """The time up to which a reply completes the stream, and whether all of the reply is before it.

    If a reply reaches the end of the oplog, mongod's token tells the time up to which it searched
    (``PlanExecutorPipeline::_performChangeStreamsAccounting``). Otherwise the token is that of the
    reply's last event, and more events of that time may follow, as in a transaction. They may also
    follow from a mongos, whose token is the lowest of its shards', and after the high-water token
    with which a stream opens, which is one tick later than the server's time.
    """
    last, token = batch.last, batch.token
    if token is None:
        return None, False
    time = token.cluster_time
    if time is None:
        time = last.time if last is not None else None
    elif not (
        sharded
        or (last is not None and last.token == token)
        or (token == start and token.is_high_water)
    ):
        return time, True
    return (None, False) if time is None else (before(time), False)


def split(slices: Sequence[Slice], time: Timestamp) -> tuple[list[Slice], list[Slice]]:
    """The events up to a time, and the events after it. The events' times never decrease."""
    early, late = list(slices), []
    while early and _time(early[-1], len(early[-1]) - 1, time) > time:
        slice_ = early.pop()
        first, count = 0, len(slice_)
        while first < count:  # the first event after the time
            middle = (first + count) // 2
            if _time(slice_, middle, time) > time:
                count = middle
            else:
                first = middle + 1
        late.append(slice_.part(first, len(slice_)))
        if first:
            early.append(slice_.part(0, first))
            break
    return early, late[::-1]


def _time(slice_: Slice, index: int, otherwise: Timestamp) -> Timestamp:
    return slice_.part(index, index + 1).last().time or otherwise
