"""Watches reads that are in progress.

- Their server may be gone. Both drivers end a read when their monitor's heartbeat *times out*, but
  not when the monitor is refused or cut off while the read's own connection looks open (a proxy, a
  firewall; measured with Motor 3.7.1 and PyMongo 4.20). The watch cancels such a read.
- Their server may no longer suit the stream's read preference. The watch cancels such a read, too.
- A read may be slow because its server searches the oplog. The watch then asks the server on
  another connection whether it works on the read: a hanging connection looks the same otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from pymongo.topology_description import TopologyDescription

from tailrace.drivers.pinning import Pin, ReadPreference, unsuitable
from tailrace.errors import ConnectionFailed, DriverError

T = TypeVar("T")

_LOOK_SECONDS = 0.25
_LOOKS = 12
"""After this many looks in a row at an unknown server, its reads are cancelled: elections and
restarts make a server unknown for a moment."""
_PATIENCE_SECONDS = 0.5
"""How long after a read should have ended its wait for a change the server is asked."""
_ASK_SECONDS = 0.5
_ANSWER_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Read:
    """A ``getMore`` of a cursor at ``pin``. ``ask`` asks the server about it and never raises."""

    pin: Pin
    mode: ReadPreference
    ask: Callable[[Read], Awaitable[None]]
    await_seconds: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ask_at: float = 0.0
    looks: int = 0
    failure: DriverError | None = None
    over: bool = False


class Reads:
    """One driver's reads in progress. ``topology``: what the driver's monitors know."""

    def __init__(self, topology: Callable[[], TopologyDescription]) -> None:
        self._topology = topology
        self._reads: set[Read] = set()

    async def watched(self, read: Read, reply: Awaitable[T]) -> T:
        """Awaits ``reply``, unless the pin's server stays unknown or no longer suits the mode."""
        read.ask_at = anyio.current_time() + read.await_seconds + _PATIENCE_SECONDS
        with read.scope:
            self._reads.add(read)
            try:
                return await reply
            finally:
                self._reads.discard(read)
                read.over = True
        assert read.failure is not None  # noqa: S101 - for the type checker: set before cancel
        raise read.failure

    async def watch(self) -> None:
        """Looks at the reads until cancelled."""
        async with anyio.create_task_group() as asking:
            while True:
                await anyio.sleep(_LOOK_SECONDS)
                if self._reads:
                    self._look(asking)

    def _look(self, asking: TaskGroup) -> None:
        topology, now = self._topology(), anyio.current_time()
        servers = topology.server_descriptions()
        known = {address for address, server in servers.items() if server.is_server_type_known}
        for read in tuple(self._reads):
            if read.failure is not None:
                continue  # already cancelled
            # A direct connection has one server and no address.
            there = read.pin.address in known if read.pin.address else bool(known)
            read.looks = 0 if there else read.looks + 1
            if read.looks == _LOOKS:
                read.failure = ConnectionFailed(
                    f"the cursor's server {read.pin.address or ''} is gone"
                )
            else:
                read.failure = unsuitable(topology, read.pin, read.mode)
            if read.failure is not None:
                read.scope.cancel()
            elif now >= read.ask_at:
                read.ask_at = math.inf
                asking.start_soon(self._ask, read, name="question about a read")

    async def _ask(self, read: Read) -> None:
        with anyio.move_on_after(_ANSWER_SECONDS):
            await read.ask(read)
        read.ask_at = anyio.current_time() + _ASK_SECONDS
