"""uvicorn without signal handlers, and with limits on connections.

A connection that sends no complete request, or does not read its answer, is closed after a while,
or as soon as a new connection needs its place. So the orchestrator's probe always gets through.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_LONGEST_HEAD_BYTES = 16 * 1024
_MOST_CONNECTIONS = 256
"""For each further connection, the one that was idle for longest is closed."""
_BACKLOG = 128
"""The most connections accepted at once. It is smaller than ``_MOST_CONNECTIONS``, so that no new
connection is closed before its request is read."""


class Connections(dict[H11Protocol, None]):
    """The open connections; the one that was idle for longest comes first."""

    @property
    def unread(self) -> int:
        """Bytes of answers that clients have not read yet."""
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

    The client has this time to complete the head of a request, and again to read its answer.
    uvicorn's own limit applies only to idle connections: a byte now and then, or an unread answer,
    would keep a connection open forever.
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
        if under_way and not (self.cycle.more_body or self.cycle.response_started):
            self._wait()  # the request is complete: the client waits for us
        elif under_way and not self._answering:
            # The request came in time. The client has the same time to read the answer.
            self._answering = True
            self._wait()
        else:
            self.transport.abort()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the composition root handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
