"""The clients that Tailrace is compared with: the drivers' own ``watch()``.

``python -m tests.bench.clients motor|pymongo|find URI HANDLER STREAM`` runs until it is killed. At
SIGUSR1 it prints how many events it has handled. ``STREAM`` is a
:class:`tests.bench.contenders.Stream` as JSON. ``find`` reads the existing documents.
"""

import asyncio
import json
import signal
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from bson.timestamp import Timestamp
from pymongo import MongoClient

from tests.bench import delays
from tests.bench.namespace import NAMESPACE

Change = Mapping[str, Any]
_DATABASE, _, _COLLECTION = NAMESPACE.partition(".")


async def ignore(change: Change) -> None:
    """Like :func:`tests.bench.targets.ignore`."""


async def read_document(change: Change) -> None:
    """Like :func:`tests.bench.targets.read_document`."""
    document = change.get("fullDocument")
    if document is not None:
        document["status"]


async def note_delay(change: Change) -> None:
    """Like :func:`tests.bench.targets.note_delay`."""
    delays.note(time.monotonic_ns(), change["fullDocument"])


HANDLERS = {"ignore": ignore, "read_document": read_document, "note_delay": note_delay}


async def follow(
    driver: Any, uri: str, handler: Callable[[Change], Awaitable[None]], stream: Mapping[str, Any]
) -> None:
    """The loop that people write around a stream, which calls the handler."""
    count = 0
    start = stream["start_seconds"]
    watching = driver(uri)[_DATABASE][stream["collection"]].watch(
        full_document=stream["full_document"],
        start_at_operation_time=None if start is None else Timestamp(start, 0),
        max_await_time_ms=1000,
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: print(count, flush=True))
    async with await watching if asyncio.iscoroutine(watching) else watching as changes:
        async for change in changes:
            await handler(change)
            count += 1


def find(uri: str, collection: str) -> NoReturn:
    """The loop that people write to copy a collection undecoded. Documents have one size."""
    count = 0
    signal.signal(signal.SIGUSR1, lambda *_: print(count, flush=True))
    documents: MongoClient[Change] = MongoClient(uri)
    for batch in documents[_DATABASE][collection].find_raw_batches():
        count += len(batch) // struct.unpack_from("<i", batch)[0]
    while True:
        signal.pause()


def main() -> None:
    """Runs the client that the arguments name."""
    name, uri, handler, stream = sys.argv[1:]
    if name == "find":
        find(uri, json.loads(stream)["collection"])
    if name == "motor":
        from motor.motor_asyncio import AsyncIOMotorClient as Client
    else:
        from pymongo import AsyncMongoClient as Client
    asyncio.run(follow(Client, uri, HANDLERS[handler], json.loads(stream)))


if __name__ == "__main__":
    main()
