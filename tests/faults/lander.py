"""Lands events in a lake, killed at every step in turn: ``python -m tests.faults.lander LAKE``.

Each child process opens the lake, looks up the last landed change, and lands the next ones. The
n-th child is killed before its n-th file system call, until one child completes. Prints what each
child found, as one line of JSON.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import bson

from tailrace.destinations.parquet.landing import Landing
from tailrace.engine import RunIdentity
from tailrace.lake.segment import Documents
from tailrace.lake.writable_lake import WritableLake
from tests.unit.engine.changes import change

STEPS = ("open", "write", "fsync", "close", "link", "unlink", "mkdir", "listdir")
BATCH = 3


def kill_at(step: int) -> None:
    """Kills this process before its ``step``-th call of the file system, whichever call it is."""
    calls = count()

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if next(calls) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **keywords)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def land(path: str) -> None:
    landing = Landing(WritableLake.open(path), "orders", Documents.BSON)
    position = landing.begin(RunIdentity("orders", "rs0/1", "", 1))
    # The increment of a change's time is always 1; the seconds are the change's number.
    first = 0 if position is None else int(position.token.document["_data"][2:10], 16) + 1
    start = 0 if position is None else first - int(change(0)["clusterTime"].time)
    landing.append([bson.encode(change(n)) for n in range(start, start + BATCH)])
    landing.commit()


def children(path: str) -> Iterator[bool]:
    """Yields True for each child that was killed; the last one is not."""
    for step in count():
        child = os.fork()
        if not child:
            kill_at(step)
            land(path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, f"child {step} ended with {status}"
        yield killed
        if not killed:
            return


if __name__ == "__main__":
    print(json.dumps(list(children(sys.argv[1]))))
