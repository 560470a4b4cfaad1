"""The embedded server: MongoDB's mongod as a separate process, on a loopback port."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from tailrace.demo.child_process import ChildProcess, child_process, last_lines
from tailrace.errors import StartRefused

REPLICA_SET = "rs0"

START_SECONDS = 60.0
"""Usually there is a primary in half a second; a loaded machine may take many times as long."""


def options(storage: Path, port: int) -> list[str]:
    """The options of a small member of the replica set :data:`REPLICA_SET`, on loopback."""
    return [
        *("--dbpath", str(storage), "--port", str(port), "--bind_ip", "127.0.0.1"),
        *("--replSet", REPLICA_SET, "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "990"),
        *("--nounixsocket", "--setParameter", "diagnosticDataCollectionEnabled=false"),
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def embedded_server(program: Path, storage: Path, log: Path) -> AsyncIterator[str]:
    """Runs a replica set of one member during the block; yields its URI."""
    port = free_port()
    await anyio.Path(storage).mkdir(parents=True, exist_ok=True)
    command = [str(program), *options(storage, port)]
    async with child_process(command, log=log) as child:
        try:
            with anyio.fail_after(START_SECONDS):
                await _initiate(child, port)
        except TimeoutError:
            raise _refused(f"did not start within {START_SECONDS:.0f} s", child) from None
        yield f"mongodb://127.0.0.1:{port}/?replicaSet={REPLICA_SET}"


async def _initiate(child: ChildProcess, port: int) -> None:
    """Initiates a replica set of this process, and waits until it is the primary."""
    client = AsyncMongoClient[dict[str, Any]](
        "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=500, timeoutMS=2000
    )
    member = {"_id": 0, "host": f"127.0.0.1:{port}"}
    # If cancelled, PyMongo leaves sockets open. So its calls are shielded, with short time limits.
    try:
        while True:
            # An error means that it does not listen yet, or is initiated but not elected.
            with anyio.CancelScope(shield=True), suppress(PyMongoError):
                if (await client.admin.command("hello"))["isWritablePrimary"]:
                    return
                configuration = {"_id": REPLICA_SET, "members": [member]}
                await client.admin.command("replSetInitiate", configuration)
            if child.process.returncode is not None:
                raise _refused(f"ended with code {child.process.returncode}", child)
            await anyio.sleep(0.05)
    finally:
        with anyio.CancelScope(shield=True):
            await client.close()


def _refused(what: str, child: ChildProcess) -> StartRefused:
    """An error with the errors that mongod printed (JSON lines), or with its last lines."""
    lines = last_lines(child.log, 200).splitlines()
    errors = [line for line in lines if '"s":"E"' in line or '"s":"F"' in line]
    printed = "\n".join(errors or lines[-15:])
    return StartRefused(f"the embedded server {what}; it printed:\n{printed}")
