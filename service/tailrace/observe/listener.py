"""uvicorn, set up for small answers to anybody: without signal handlers, and without patience.

Whoever reaches the port may open connections and leave them: half a request, none at all, or an
answer that nobody reads. Such a connection is given up after a while, and before that as soon as
its place is needed, so that there is always one for the next request. A probe of the orchestrator
is that next request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Protocol

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_LONGEST_HEAD_BYTES = 16 * 1024
_MOST_CONNECTIONS = 256
"""For a further one, the one that has done nothing for longest is given up: a flood takes no file
descriptors from everything else, and keeps nobody out."""
_BACKLOG = 128
"""Connections that the loop may take in at once. Below the number above, so that a new one is not
given up before its request is read."""


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine reaches the socket."""
    return ip_address(listener.getsockname()[0]).is_loopback


class _Connection(Protocol):
    transport: Any

    def abandon(self) -> None:
        """Gives it up at once, whatever it was about to send."""


class Connections:
    """Those that are open, the one that has done nothing for longest at the front."""

    def __init__(self, most: int = _MOST_CONNECTIONS) -> None:
        self._most = most
        self._open: dict[_Connection, None] = {}

    @property
    def unread(self) -> int:
        """Bytes of answers that clients have not taken in yet."""
        return sum(each.transport.get_write_buffer_size() for each in self._open)

    def add(self, connection: _Connection) -> None:
        """Takes one in, and gives another up where there are too many."""
        while len(self._open) >= self._most:
            longest = next(iter(self._open))
            self.remove(longest)
            longest.abandon()
        self._open[connection] = None

    def used(self, connection: _Connection) -> None:
        """It was answered."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: _Connection) -> None:
        """It is closed."""
        self._open.pop(connection, None)


def server_of(app: Any, connections: Connections, seconds: float) -> uvicorn.Server:
    """A server for an ASGI application; see :class:`_Impatient` for ``seconds``."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        proxy_headers=False,
        http=_impatient(connections, seconds),
        h11_max_incomplete_event_size=_LONGEST_HEAD_BYTES,
        backlog=_BACKLOG,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return _Server(config)


def _impatient(connections: Connections, seconds: float) -> type[asyncio.Protocol]:
    return type("Impatient", (_Impatient,), {"shared": connections, "seconds": seconds})


class _Impatient(H11Protocol):
    """Gives a connection up that gets no further for ``seconds``.

    Within that time the head of a request must be complete, counted from the last answer or the
    beginning, and an answer must be taken in. uvicorn's own limit is for idle connections only:
    one byte now and then would hold one for ever, and so would an answer that is not read.
    """

    shared: Connections
    seconds: float
    _patience: asyncio.TimerHandle | None = None
    _answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.shared.add(self)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.shared.used(self)
        self._answering = False
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.shared.remove(self)
        if self._patience is not None:
            self._patience.cancel()

    def abandon(self) -> None:
        """Closes it at once, whatever it was about to send."""
        self.transport.abort()

    def _wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(self.seconds, self._give_up)

    def _give_up(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        if under_way and not self._answering:
            # Its request came within the time. The answer has as long.
            self._answering = True
            self._wait()
            return
        self.abandon()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the composition root's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
