"""The handlers that are measured. Those for drivers and those for Tailrace do the same."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

from tailrace import Unavailable
from tailrace.event import ChangeEvent
from tests.bench import delays


async def ignore(event: ChangeEvent) -> None:
    """Does nothing."""


async def read_document(event: ChangeEvent) -> None:
    """Reads fields of the document."""
    document = event.full_document
    if document is not None:
        document["status"]


async def read_each(events: Sequence[ChangeEvent]) -> None:
    """Reads each event's type and key."""
    for event in events:
        event.operation_type, event.document_key  # noqa: B018


async def measure_each(events: Sequence[bytes]) -> None:
    """Reads each event's bytes, undecoded."""
    sum(map(len, events))


async def away(event: ChangeEvent) -> None:
    """A destination that is down."""
    raise Unavailable("it is away")


async def count(event: ChangeEvent) -> None:
    """Does nothing, and records what the process used between its first and its last event."""
    _meter.event()


async def count_1_ms(event: ChangeEvent) -> None:
    """Like :func:`count`, for a destination that answers after a millisecond."""
    await anyio.sleep(0.001)
    _meter.event()


class _Meter:
    """Writes seconds and CPU seconds to ``BENCH_METER`` after event ``BENCH_EVENTS``."""

    def __init__(self) -> None:
        self._left = int(os.environ.get("BENCH_EVENTS", "0"))
        self._began: tuple[float, float] | None = None

    def event(self) -> None:
        if self._began is None:
            self._began = time.perf_counter(), time.process_time()
        self._left -= 1
        if self._left == 0:
            clock, cpu = self._began
            used = f"{time.perf_counter() - clock} {time.process_time() - cpu}"
            path = Path(os.environ["BENCH_METER"])
            path.with_suffix(".new").write_text(used)
            path.with_suffix(".new").rename(path)


_meter = _Meter()


async def note_delay(event: ChangeEvent) -> None:
    """Records the time from the sending of the event to this call."""
    delays.note(time.monotonic_ns(), event.full_document or {})


async def note_inserts(events: Sequence[ChangeEvent]) -> None:
    """Records when each insert was sent, and its delay; accepts rows as well."""
    called = time.monotonic_ns()
    inserts = [event.full_document for event in events if event.operation_type == "insert"]
    with open(os.environ["BENCH_DELAYS"], "a") as file:  # noqa: ASYNC230 - of no consequence
        sent = [document["sentAt"] for document in inserts if document is not None]
        file.writelines(f"{each} {called - each}\n" for each in sent)
