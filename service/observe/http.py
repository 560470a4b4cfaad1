"""``/metrics``, ``/livez``, ``/readyz`` and ``/status`` on one small server.

uvicorn serves; five paths need no framework above it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from service.errors import ConfigurationError, Problem

_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Health:
    """What the server asks: each answer is a list of reasons why not, empty when all is well."""

    alive: Callable[[], list[str]]
    ready: Callable[[], list[str]]
    status: Callable[[], Mapping[str, Any]]


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; a port that is taken or not ours is a :class:`ConfigurationError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            Problem(
                "http",
                f"cannot listen on {host}:{port}: {reason}. Choose another http.port (0 for any "
                "free one) or http.host, or end the process that holds it",
            )
        ) from error
    return listener


class HttpServer:
    """Serves until :meth:`stop`; run it as a task."""

    def __init__(
        self, listener: socket.socket, registry: CollectorRegistry, health: Health
    ) -> None:
        self._listener = listener
        self._registry = registry
        self._health = health
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            proxy_headers=False,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._listener.getsockname()[1])

    async def run(self) -> None:
        """Serves on the socket, and closes it."""
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Lets :meth:`run` return once open requests are answered."""
        self._server.should_exit = True

    async def _app(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            status, kind, body = 405, _TEXT, b"only GET\n"
        else:
            status, kind, body = self._answer(scope["path"], dict(scope["headers"]))
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))  # RFC 9110, 15.5.6
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["method"] == "HEAD":
            body = b""
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str, headers: Mapping[bytes, bytes]) -> tuple[int, str, bytes]:
        if path == "/metrics":
            encode, kind = choose_encoder(headers.get(b"accept", b"").decode("latin-1"))
            return 200, kind, encode(self._registry)
        if path == "/livez":
            return _verdict(self._health.alive())
        if path == "/readyz":
            return _verdict(self._health.ready())
        if path == "/status":
            body = json.dumps(self._health.status(), indent=2, default=str) + "\n"
            return 200, "application/json", body.encode()
        return 404, _TEXT, b"paths: /metrics /livez /readyz /status\n"


def _verdict(reasons: list[str]) -> tuple[int, str, bytes]:
    if reasons:
        return 503, _TEXT, ("\n".join(reasons) + "\n").encode()
    return 200, _TEXT, b"ok\n"


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the composition root's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
