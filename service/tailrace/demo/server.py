"""The embedded server: MongoDB's mongod as a process of its own, on a port of loopback."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from tailrace.demo.child_process import ChildProcess, child_process, last_lines
from tailrace.errors import StartRefused

REPLICA_SET = "rs0"

START_SECONDS = 60.0
"""A primary is there in half a second; a machine under load may take many times that."""


def options(storage: Path, port: int) -> list[str]:
    """The flags of one member of the replica set :data:`REPLICA_SET`, small and on loopback."""
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
    """A replica set of one member for the time of the block; yields its URI.

    ``program`` is a mongod, ``storage`` an empty or missing directory for its data. Raises
    :class:`StartRefused` with what the server printed.
    """
    port = free_port()
    await anyio.Path(storage).mkdir(parents=True, exist_ok=True)
    command = [str(program), *options(storage, port)]
    async with child_process(command, log=log, directory=storage) as process:
        try:
            with anyio.fail_after(START_SECONDS):
                await _initiate(process, port)
        except TimeoutError:
            raise _refused(f"did not start within {START_SECONDS:.0f} s", process) from None
        yield f"mongodb://127.0.0.1:{port}/?replicaSet={REPLICA_SET}"


async def _initiate(process: ChildProcess, port: int) -> None:
    """Makes the process a replica set, and waits until it is its primary."""
    client = AsyncMongoClient[dict[str, Any]](
        "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=500, timeoutMS=2000
    )
    # Cancelled, PyMongo leaves sockets open. So it is not cancelled; its time limits are short.
    try:
        while True:
            with anyio.CancelScope(shield=True):
                if await _is_primary(client, port):
                    return
            if process.exit_code is not None:
                raise _refused(f"ended with code {process.exit_code}", process)
            await anyio.sleep(0.05)
    finally:
        with anyio.CancelScope(shield=True):
            await client.close()


async def _is_primary(client: AsyncMongoClient[dict[str, Any]], port: int) -> bool:
    members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
    try:
        if (await client.admin.command("hello"))["isWritablePrimary"]:
            return True
        await client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members})
    except PyMongoError:  # it does not listen yet, or is initiated and not elected
        pass
    return False


def _refused(what: str, process: ChildProcess) -> StartRefused:
    """With the errors among what mongod printed, a JSON document a line; else its last lines."""
    lines = last_lines(process.log, 200).splitlines()
    errors = [line for line in lines if '"s":"E"' in line or '"s":"F"' in line]
    printed = "\n".join(errors or lines[-15:])
    return StartRefused(f"the embedded server {what}; it printed:\n{printed}")
