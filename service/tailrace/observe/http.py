"""The HTTP server: when a request is answered, and how much of it is read.

Probes are answered at once. Other requests are answered one at a time, or a few at a time if they
wait for something, with the event loop free in between, and refused if too many wait. So a flood of
requests delays neither a probe nor a handler. What is answered, the application decides
(:mod:`tailrace.control.api`).
"""

import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import anyio

from tailrace.errors import ConfigurationError, Problem
from tailrace.observe.exchange import Answer, Application, Call, Pace, Request, line
from tailrace.observe.listener import Connections, server_of

LARGEST_BODY_BYTES = 64 * 1024

_MOST_WAITING = 16
"""How many requests may wait in a queue."""
_MOST_AT_ONCE = 8
"""How many requests may wait for a store, a server or a handler at once."""
_MOST_CHANGES = 64
"""The same of changes: one may wait minutes for its effect."""
_MOST_UNREAD_BYTES = 8 * 1024 * 1024
"""The limit for answers in memory that clients have not read yet."""

_ALWAYS = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

_STOPPING = line(503, "the process stops: try again when it runs")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


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
        application: Application,
        *,
        patience_seconds: float = 10.0,
    ) -> None:
        self._listener = listener
        self._application = application
        self._connections = Connections()
        self._server = server_of(self._app, self._connections, patience_seconds)
        self._questions = _slots(_MOST_AT_ONCE)
        self._changes = _slots(_MOST_CHANGES)
        """Of their own, so that no number of questions refuses a change."""

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
        receive: Receive,
        send: Send,
    ) -> None:
        request = Request(
            scope["method"],
            scope["path"],
            dict(scope["headers"]),
            scope.get("query_string", b"").decode("latin-1"),
            (scope.get("client") or ("",))[0],
        )
        route = self._application.find(request)
        try:
            if isinstance(route, Answer):
                answer = route
            else:
                answer = await self._called(route, request, receive)
        except anyio.get_cancelled_exc_class():
            # The process stops, and uvicorn waits no longer: this answer is the task's end. If the
            # error went on, uvicorn would answer 500 and log a traceback.
            answer = _STOPPING
        with anyio.CancelScope(shield=answer is _STOPPING):
            await _send(send, request, answer)

    async def _called(self, call: Call, request: Request, receive: Receive) -> Answer:
        body = await _read(receive) if request.has_body else b""
        if body is None:
            return line(
                413, f"the body has more than {LARGEST_BODY_BYTES} bytes: ask for less at once"
            )
        if call.pace is Pace.AT_ONCE:
            return await call.answer(body)
        is_change = request.method == "POST"
        slots = (self._changes if is_change else self._questions)[call.pace]
        waiting = slots.statistics().tasks_waiting
        unread = 0 if is_change else self._connections.unread
        if waiting >= _MOST_WAITING or unread > _MOST_UNREAD_BYTES:
            return _BUSY
        async with slots:
            await anyio.lowlevel.checkpoint()
            return await call.answer(body)


def _slots(most: int) -> Mapping[Pace, anyio.Semaphore]:
    return {Pace.IN_TURN: anyio.Semaphore(1), Pace.WAITS: anyio.Semaphore(most)}


async def _read(receive: Receive) -> bytes | None:
    """The body; ``None`` if it is too large."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > LARGEST_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


_BUSY = line(
    503, "too many requests at once: try again", (b"retry-after", b"1"), (b"connection", b"close")
)


async def _send(send: Send, request: Request, answer: Answer) -> None:
    fields = [
        (b"content-type", answer.kind.encode()),
        (b"content-length", b"%d" % len(answer.body)),
        *_ALWAYS,
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    body = b"" if request.method == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})
