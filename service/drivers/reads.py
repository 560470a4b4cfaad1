"""Ends reads that would hang for ever, because their server is gone and nobody told them.

Both drivers end a read when their monitor's heartbeat *times out*. Where the monitor is refused or
cut off instead, while the read's own connection looks open (a proxy that holds it, a firewall that
dropped only that one), they leave it waiting (measured with Motor 3.7.1 and PyMongo 4.20). Here
such a read is given up, and with it its cursor: the stream resumes, and reads again what was lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio
from pymongo.topology_description import TopologyDescription

from service.drivers.pinning import Pin
from service.errors import ConnectionFailed

T = TypeVar("T")

_LOOK_SECONDS = 1.0
_LOOKS = 3
"""Elections and restarts make a server unknown for a moment; its reads end by themselves then."""


@dataclass(slots=True)
class _Read:
    pin: Pin
    looks: int = 0
    """How often in a row its server was unknown."""


class Reads:
    """The reads of one driver that are under way; ``topology`` tells what its monitors know."""

    def __init__(self, topology: Callable[[], TopologyDescription]) -> None:
        self._topology = topology
        self._reads: dict[anyio.CancelScope, _Read] = {}

    async def watched(self, pin: Pin, read: Awaitable[T]) -> T:
        """What is read; raises :class:`ConnectionFailed` if the pin's server stays unknown."""
        with anyio.CancelScope() as scope:
            self._reads[scope] = _Read(pin)
            try:
                return await read
            finally:
                del self._reads[scope]
        raise ConnectionFailed(f"the cursor's server {pin.address or ''} is gone")

    async def watch(self) -> None:
        """Looks at them, until cancelled."""
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            if self._reads:
                self._look()

    def _look(self) -> None:
        known = {
            address
            for address, server in self._topology().server_descriptions().items()
            if server.is_server_type_known
        }
        for scope, read in tuple(self._reads.items()):
            # Without an address it is a direct connection, to one server.
            there = read.pin.address in known if read.pin.address else bool(known)
            read.looks = 0 if there else read.looks + 1
            if read.looks == _LOOKS:
                scope.cancel()
