"""uvicorn without signal handlers, and with limits on connections.

A connection with half a request, with none, or with an answer that nobody reads is closed after a
while, or as soon as another one needs its place: the orchestrator's probe always gets through.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_LONGEST_HEAD_BYTES = 16 * 1024
_MOST_CONNECTIONS = 256
"""For a further one, the one that was idle for longest is closed."""
_BACKLOG = 128
"""Accepted at once: fewer, so that no new one is closed before its request is read."""


class Connections(dict[H11Protocol, None]):
    """The open connections; the one that was idle for longest is the first."""

    @property
    def unread(self) -> int:
        """Bytes of answers that clients have not taken in yet."""
        return sum(each.transport.get_write_buffer_size() for each in self)


def server_of(app: Any, connections: Connections, seconds: float) -> uvicorn.Server:
    """A server for an ASGI application; see :class:`_LimitedProtocol` for ``seconds``."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        proxy_headers=False,
        http=type("Limited", (_LimitedProtocol,), {"shared": connections, "seconds": seconds}),
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


class _LimitedProtocol(H11Protocol):
    """Closes a connection that makes no progress for ``seconds``.

    Within that time the head of a request must be complete, and within the same time its answer
    must be read. uvicorn's own limit is for idle connections only: a byte now and then would keep
    one open for ever, and so would an unread answer.
    """

    shared: Connections
    seconds: float
    _timer: asyncio.TimerHandle | None = None
    _answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        while len(self.shared) >= _MOST_CONNECTIONS:
            longest = next(iter(self.shared))
            del self.shared[longest]
            longest.transport.abort()
        self.shared[self] = None
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self in self.shared:
            del self.shared[self]
            self.shared[self] = None
        self._answering = False
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.shared.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.seconds, self._close_or_extend)

    def _close_or_extend(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        if under_way and not self._answering:
            # The request came in time. The client has the same time to read the answer.
            self._answering = True
            self._wait()
        else:
            self.transport.abort()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the composition root's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
