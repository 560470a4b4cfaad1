"""uvicorn, set up for small answers to anybody: without signal handlers, and without patience."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_LONGEST_HEAD_BYTES = 16 * 1024
_MOST_CONNECTIONS = 256
"""Further ones get 503, so that a flood does not take the file descriptors from everything else."""


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine reaches the socket."""
    return ip_address(listener.getsockname()[0]).is_loopback


def server_of(app: Any, header_seconds: float) -> uvicorn.Server:
    """A server for an ASGI application; see :class:`_Impatient` for ``header_seconds``."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        proxy_headers=False,
        http=_impatient(header_seconds),
        h11_max_incomplete_event_size=_LONGEST_HEAD_BYTES,
        limit_concurrency=_MOST_CONNECTIONS,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return _Server(config)


def _impatient(header_seconds: float) -> type[asyncio.Protocol]:
    return type("Impatient", (_Impatient,), {"header_seconds": header_seconds})


class _Impatient(H11Protocol):
    """Hangs up where a request's head is not complete ``header_seconds`` after the last answer.

    uvicorn's own limit is for idle connections only: one byte now and then would hold one for
    ever.
    """

    header_seconds: float
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._patience is not None:
            self._patience.cancel()

    def _wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(self.header_seconds, self._hang_up)

    def _hang_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the composition root's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
