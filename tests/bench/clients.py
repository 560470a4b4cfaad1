"""What Tailrace is compared with: the drivers' own ``watch()``, and a socket that is drained.

``python -m tests.bench.clients motor|pymongo|drain URI HANDLER STREAM`` runs until SIGTERM, then
prints how many events (the drain: bytes) it has had; the drivers' do so at SIGUSR1 as well.
``STREAM`` is a :class:`tests.bench.contenders.Stream` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import bson
from bson import Int64
from bson.timestamp import Timestamp

from tests.bench import targets
from tests.bench.stock import NAMESPACE
from tests.scripted import wire

Change = Mapping[str, Any]
_DATABASE, _, _COLLECTION = NAMESPACE.partition(".")


async def ignore(change: Change) -> None:
    """As :func:`tests.bench.targets.ignore`."""


async def read_document(change: Change) -> None:
    """As :func:`tests.bench.targets.read_document`."""
    document = change.get("fullDocument")
    if document is not None:
        document["status"]


async def note_delay(change: Change) -> None:
    """As :func:`tests.bench.targets.note_delay`."""
    targets.note(time.monotonic_ns(), change["fullDocument"])


HANDLERS = {"ignore": ignore, "read_document": read_document, "note_delay": note_delay}


async def follow(
    client: Any, handler: Callable[[Change], Awaitable[None]], stream: Mapping[str, Any]
) -> int:
    """What people write: a loop around the stream that calls the handler."""
    count = 0
    stopped = asyncio.Event()

    async def read() -> None:
        nonlocal count
        collection = client[_DATABASE][stream["collection"]]
        start = stream["start_seconds"]
        watching = collection.watch(
            full_document=stream["full_document"],
            start_at_operation_time=None if start is None else Timestamp(start, 0),
            max_await_time_ms=1000,
        )
        async with await watching if asyncio.iscoroutine(watching) else watching as changes:
            async for change in changes:
                await handler(change)
                count += 1

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGUSR1, lambda: print(count, flush=True))
    reading = asyncio.ensure_future(read())
    waiting = asyncio.ensure_future(stopped.wait())
    await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        reading.result()
    reading.cancel()
    return count


async def motor(uri: str, handler: str, stream: Mapping[str, Any]) -> int:
    """Motor's ``watch()``."""
    from motor.motor_asyncio import AsyncIOMotorClient

    client: Any = AsyncIOMotorClient(uri)
    return await follow(client, HANDLERS[handler], stream)


async def pymongo(uri: str, handler: str, stream: Mapping[str, Any]) -> int:
    """PyMongo's asynchronous ``watch()``."""
    from pymongo import AsyncMongoClient

    return await follow(AsyncMongoClient(uri), HANDLERS[handler], stream)


def drain(uri: str) -> int:
    """Reads replies and looks at nothing but the cursor's id."""
    host, _, port = uri.removeprefix("mongodb://").partition("/")[0].partition(":")
    connection = socket.create_connection((host, int(port)))
    buffer = bytearray(64 * 1024 * 1024)
    size = 0
    signal.signal(signal.SIGTERM, lambda *_: (print(size, flush=True), sys.exit(0)))

    def ask(command: dict[str, Any]) -> memoryview:
        body = b"\0\0\0\0\0" + bson.encode({**command, "$db": _DATABASE})
        head = (len(body) + 16).to_bytes(4, "little") + b"\1\0\0\0\0\0\0\0"
        connection.sendall(head + wire.OP_MSG.to_bytes(4, "little") + body)
        view, got, wanted = memoryview(buffer), 0, 4
        while got < wanted:
            got += connection.recv_into(view[got:])
            wanted = max(int.from_bytes(buffer[:4], "little"), 4)
        return view[21:got]

    opened = bson.decode(
        bytes(ask({"aggregate": _COLLECTION, "pipeline": [{"$changeStream": {}}]}))
    )
    identity = Int64(opened["cursor"]["id"])
    while True:
        reply = ask({"getMore": identity, "collection": _COLLECTION, "maxTimeMS": 1000})
        size += len(reply)


def main() -> None:
    """Runs the client that the arguments name."""
    name, uri, handler, stream = sys.argv[1:]
    if name == "drain":
        drain(uri)
        return
    run = {"motor": motor, "pymongo": pymongo}[name]
    print(asyncio.run(run(uri, handler, json.loads(stream))), flush=True)


if __name__ == "__main__":
    main()
