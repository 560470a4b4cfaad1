"""An HTTP endpoint in the test's own event loop, which answers as the test wants."""

import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from aiohttp import web
from multidict import CIMultiDictProxy

from tailrace.destinations.http.settings import HttpHandlerSettings
from tailrace.engine import Handler
from tailrace.event import ChangeEvent
from tailrace.handlers.open_handler import open_handler
from tests.handlers import opening
from tests.machine import free_port
from tests.scripted.wire import in_order
from tests.unit.envelope.changes import change

SECRETS = [f"whsec_{b64encode(bytes([number] * 32)).decode()}" for number in range(3)]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Received:
    request: web.Request
    body: bytes

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self.request.headers

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Receiver:
    """An endpoint that gives these answers one after another, and then 204."""

    url: str
    answers: Iterator[Answer]
    received: list[Received] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.StreamResponse:
        self.received.append(Received(request, await request.read()))
        return await next(self.answers, answer(204))(request)

    @property
    def only(self) -> Received:
        (found,) = self.received
        return found


@asynccontextmanager
async def receiving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    port = free_port()
    scheme = "http" if tls is None else "https"
    receiver = Receiver(f"{scheme}://127.0.0.1:{port}/hook", iter(answers))
    application = web.Application(client_max_size=2**26)
    application.router.add_route("*", "/{path:.*}", receiver.receive)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield receiver
    finally:
        await runner.cleanup()


def answer(status: int, text: str = "", **headers: str) -> Answer:
    async def answered(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=text or None, headers=named)

    return answered


async def nothing(request: web.Request) -> web.Response:
    """Closes the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def silence(request: web.Request) -> web.Response:
    await anyio.sleep_forever()
    raise AssertionError


def settings(url: str, **more: Any) -> HttpHandlerSettings:
    return HttpHandlerSettings.model_validate({"type": "http", "url": url, **more})


@asynccontextmanager
async def hook(url: str, **more: Any) -> AsyncIterator[Handler]:
    async with open_handler(opening("hook"), settings(url, **more)) as handler:
        yield handler


@asynccontextmanager
async def hooked(
    *answers: Answer, tls: ssl.SSLContext | None = None, **more: Any
) -> AsyncIterator[tuple[Receiver, Handler]]:
    """An endpoint, and a handler that sends to it."""
    async with receiving(*answers, tls=tls) as endpoint, hook(endpoint.url, **more) as handler:
        yield endpoint, handler


def of(endpoint: Receiver, **more: Any) -> dict[str, Any]:
    """The handler as in ``config.yaml``."""
    return {"type": "http", "url": endpoint.url, **more}


def event(operation: str = "insert", identity: Any = 1) -> ChangeEvent:
    return ChangeEvent(in_order(change(operation, identity)))
