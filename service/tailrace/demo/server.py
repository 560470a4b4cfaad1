"""The embedded server: MongoDB's mongod as a process of its own, on a port of loopback.

Started and spoken to over a socket; which program it is, :mod:`tailrace.demo.mongod` knows.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.demo.child_process import ChildProcess
from tailrace.errors import StartRefused

REPLICA_SET = "rs0"

START_SECONDS = 60.0
"""A primary is there in half a second; a machine under load may take many times that."""

_ALREADY_INITIALIZED = 23  # server: base/error_codes.yml, AlreadyInitialized


def options(storage: Path, port: int) -> list[str]:
    """The flags of one member of the replica set :data:`REPLICA_SET`, small and on loopback."""
    return [
        *("--dbpath", str(storage), "--port", str(port), "--bind_ip", "127.0.0.1"),
        *("--replSet", REPLICA_SET, "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "990"),
        *("--nounixsocket", "--setParameter", "diagnosticDataCollectionEnabled=false"),
    ]


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class EmbeddedServer:
    """A replica set of one member that lives as long as the block; ``uri`` connects to it.

    ``program`` is a mongod, ``storage`` an empty or missing directory for its data. ``flags`` are
    more flags of the program.
    """

    def __init__(
        self,
        program: Path,
        storage: Path,
        *,
        flags: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        self.storage = storage
        self._program = program
        self.uri = ""
        self._log = log or storage.with_name(f"{storage.name}.log")
        self._flags = flags
        self._process: ChildProcess | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self.uri or 'not started'}: {self._process!r}>"

    @property
    def exit_code(self) -> int | None:
        """What it ended with; ``None`` while it runs."""
        return None if self._process is None else self._process.exit_code

    async def __aenter__(self) -> Self:
        port = free_port()
        self.storage.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [self._program, *options(self.storage, port), *self._flags]
        process = ChildProcess("embedded server", command, log=self._log, directory=self.storage)
        await process.__aenter__()
        try:
            with anyio.fail_after(START_SECONDS):
                await _initiate(process, port)
        except BaseException as error:
            await process.__aexit__(None, None, None)
            if isinstance(error, TimeoutError):
                raise StartRefused(
                    f"the embedded server did not start within {START_SECONDS:.0f} s; it "
                    f"printed:\n{_printed(process)}"
                ) from None
            raise
        self.uri = f"mongodb://127.0.0.1:{port}/?replicaSet={REPLICA_SET}"
        self._process = process
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            await self._process.__aexit__(kind, error, trace)


async def _initiate(process: ChildProcess, port: int) -> None:
    """Makes the process a replica set, and waits until it is its primary."""
    member = {"_id": 0, "host": f"127.0.0.1:{port}"}
    async with AsyncMongoClient[dict[str, Any]](
        "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=500
    ) as client:
        while True:
            if process.exit_code is not None:
                raise StartRefused(
                    f"the embedded server ended with code {process.exit_code}; it printed:\n"
                    f"{_printed(process)}"
                )
            try:
                if (await client.admin.command("hello"))["isWritablePrimary"]:
                    return
                await client.admin.command(
                    "replSetInitiate", {"_id": REPLICA_SET, "members": [member]}
                )
            except OperationFailure as error:
                if error.code != _ALREADY_INITIALIZED:
                    raise
            except PyMongoError:  # it does not listen yet
                pass
            await anyio.sleep(0.05)


def _printed(process: ChildProcess) -> str:
    """The errors among what mongod printed, a JSON document a line; else its last lines."""
    lines = process.last_lines(200).splitlines()
    errors = [line for line in lines if '"s":"E"' in line or '"s":"F"' in line]
    return "\n".join(errors or lines[-15:])
