"""``tailrace``, which records how long each chunk of a snapshot waits for its moment.

It appends the milliseconds to ``BENCH_WAITS``, one line a chunk: from when the chunk is due until
it is read. This may include handling of the previous chunk.
"""

import os
import time
from collections.abc import Sequence
from functools import wraps

from bson.timestamp import Timestamp

from tailrace.cli import main
from tailrace.engine.plan.row_source import Rows
from tailrace.snapshot.snapshots import Snapshots


def _note_waits() -> None:
    ready, read = Snapshots.ready, Snapshots.read
    due = 0.0

    @wraps(ready)
    async def noted_ready(snapshots: Snapshots) -> None:
        nonlocal due
        await ready(snapshots)
        due = time.perf_counter()

    @wraps(read)
    async def noted_read(snapshots: Snapshots, at: Timestamp, *, briefly: bool) -> Sequence[Rows]:
        waited = (time.perf_counter() - due) * 1000
        with open(os.environ["BENCH_WAITS"], "a") as file:  # noqa: ASYNC230 - of no consequence
            file.write(f"{waited}\n")
        return await read(snapshots, at, briefly=briefly)

    Snapshots.ready, Snapshots.read = noted_ready, noted_read  # type: ignore[method-assign]


if __name__ == "__main__":
    _note_waits()
    raise SystemExit(main())
