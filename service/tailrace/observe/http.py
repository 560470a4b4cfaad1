"""The HTTP server: the page, metrics, probes, the status, and changes of a scope.

``/livez`` and ``/readyz`` are answered at once. Other requests are answered one at a time, with the
event loop free in between, and refused if too many wait. So a flood of requests delays neither a
probe nor a handler.
"""

import json
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import anyio
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tailrace.errors import ConfigurationError, Problem
from tailrace.observe.access import Access, Refusal
from tailrace.observe.listener import Connections, server_of
from tailrace.observe.page import PAGE, POLICY

_TEXT = "text/plain; charset=utf-8"
_READS = ("/", "/metrics", "/livez", "/readyz", "/status")
_HEALTH = ("/livez", "/readyz")
_CHANGE = re.compile(r"/scopes/([^/]+)/(restart|snapshot)\Z")
_PATHS = (
    "paths: / /metrics /livez /readyz /status /scopes/NAME/restart (POST) "
    "/scopes/NAME/snapshot (POST)"
)
_ACTIONS = ("start", "pause", "resume", "cancel")

_MOST_WAITING = 16
"""How many requests may wait for their turn."""
_MOST_UNREAD_BYTES = 8 * 1024 * 1024
"""The limit for answers in memory that clients have not read yet."""

_ALWAYS = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class Health:
    """What the server shows and does.

    ``alive`` and ``ready`` return the reasons why not; an empty list means yes. ``degraded``
    returns what waits for an operator although the service is ready. ``restart`` starts
    a halted scope again. It returns why it cannot, or "", and raises :class:`LookupError` for an
    unknown scope.
    """

    alive: Callable[[], list[str]]
    ready: Callable[[], list[str]]
    degraded: Callable[[], list[str]]
    status: Callable[[], Mapping[str, Any]]
    restart: Callable[[str], str]
    snapshot: Callable[[str, str, tuple[str, ...], str], str]
    """Takes a scope's name, an action, and the collections and the filter of a start; returns as
    ``restart`` does."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    kind: str = _TEXT
    headers: tuple[tuple[bytes, bytes], ...] = ()


def bind(host: str, port: int) -> socket.socket:
    """The listening socket. Raises :class:`ConfigurationError` if it cannot listen there."""
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
        self,
        listener: socket.socket,
        registry: CollectorRegistry,
        health: Health,
        access: Access,
        *,
        patience_seconds: float = 10.0,
    ) -> None:
        self._listener = listener
        self._registry = registry
        self._health = health
        self._access = access
        self._connections = Connections()
        self._server = server_of(self._app, self._connections, patience_seconds)
        self._turn = anyio.Lock()
        self._log = structlog.get_logger()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def run(self) -> None:
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Lets :meth:`run` return after open requests are answered."""
        self._server.should_exit = True

    async def _app(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        query = scope.get("query_string", b"").decode("latin-1")
        if path in _HEALTH:
            answer = self._answer(method, path, headers, query)
        else:
            answer = await self._answer_in_turn(method, path, headers, query)
        fields = [
            (b"content-type", answer.kind.encode()),
            (b"content-length", b"%d" % len(answer.body)),
            *_ALWAYS,
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": fields})
        body = b"" if method == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    async def _answer_in_turn(
        self, method: str, path: str, headers: Mapping[bytes, bytes], query: str
    ) -> _Answer:
        waiting = self._turn.statistics().tasks_waiting
        if waiting >= _MOST_WAITING or self._connections.unread > _MOST_UNREAD_BYTES:
            return _BUSY
        async with self._turn:
            await anyio.lowlevel.checkpoint()
            return self._answer(method, path, headers, query)

    def _answer(
        self, method: str, path: str, headers: Mapping[bytes, bytes], query: str
    ) -> _Answer:
        if refusal := self._access.stranger(headers):
            return _refused(refusal)
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return _line(413, "no request here takes a body")
        if change := _CHANGE.match(path):
            if method != "POST":
                return _only("POST")
            return self._change(change[1], change[2], parse_qs(query), headers)
        if path not in _READS:
            return _line(404, _PATHS)
        if method not in ("GET", "HEAD"):
            return _only("GET")
        return self._read(path, headers)

    def _read(self, path: str, headers: Mapping[bytes, bytes]) -> _Answer:
        refusal = self._access.reader(headers)
        if path in _HEALTH:
            live = path == "/livez"
            # Without the token only the status is shown, which is all that an orchestrator needs.
            if reasons := self._health.alive() if live else self._health.ready():
                return _line(503, "no" if refusal else "\n".join(reasons))
            if live or not (reasons := self._health.degraded()):
                return _line(200, "ok")
            return _line(200, "\n".join(["degraded", *(() if refusal else reasons)]))
        if refusal is not None:
            return _refused(refusal)
        if path == "/metrics":
            encode, kind = choose_encoder(headers.get(b"accept", b"").decode("latin-1"))
            return _Answer(200, encode(self._registry), kind)
        if path == "/status":
            status = {**self._health.status(), "changes_need": self._access.changes}
            body = json.dumps(status, default=str, indent=2) + "\n"
            return _Answer(200, body.encode(), "application/json")
        return _Answer(200, PAGE, "text/html; charset=utf-8", (POLICY,))

    def _change(
        self, name: str, what: str, asked: Mapping[str, list[str]], headers: Mapping[bytes, bytes]
    ) -> _Answer:
        if refusal := self._access.changer(headers):
            self._log.warning("change.refused", scope=name, reason=refusal.message)
            return _refused(refusal)
        try:
            if what == "restart":
                done, reason = f"scope {name!r} starts again", self._health.restart(name)
            else:
                action = asked.get("action", ["start"])[-1]
                if action not in _ACTIONS:
                    return _line(400, f"action is one of {', '.join(_ACTIONS)}")
                filter = asked.get("filter", [""])[-1]
                chosen = tuple(asked.get("collection", ()))
                done = f"scope {name!r}: {action} of its snapshot is accepted"
                reason = self._health.snapshot(name, action, chosen, filter)
        except LookupError:
            return _line(404, f"there is no scope {name!r}")
        except ValueError as error:
            return _line(400, str(error))
        return _line(409, reason) if reason else _line(202, done)


def _line(status: int, message: str, *headers: tuple[bytes, bytes]) -> _Answer:
    return _Answer(status, f"{message}\n".encode(), headers=headers)


def _only(method: str) -> _Answer:
    allow = "GET, HEAD" if method == "GET" else method
    return _line(405, f"only {method}", (b"allow", allow.encode()))  # RFC 9110, 15.5.6


def _refused(refusal: Refusal) -> _Answer:
    challenge = refusal.challenge.encode()
    headers = ((b"www-authenticate", challenge),) if challenge else ()
    return _line(refusal.status, refusal.message, *headers)


_BUSY = _line(
    503, "too many requests at once: ask again", (b"retry-after", b"1"), (b"connection", b"close")
)
