"""Clients that waste the small server's time are disconnected, and delay nobody."""

import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import anyio.to_thread
import httpx
import pytest

from tailrace.control.action import Action
from tailrace.observe.http import LARGEST_BODY_BYTES
from tests.daemon import until
from tests.unit.observe.serving import Service, serving

LARGE = 32 * 1024 * 1024
"""The size in bytes of an answer that exceeds all buffers between the service and a client."""

HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


class Waiting(Service):
    """What is asked of the scope ``slow`` waits until it is ``released``."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()

    async def perform(self, action: Action, about: str, request: Any) -> Any:
        if about == "slow":
            self.begun.set()
            await anyio.to_thread.run_sync(self.released.wait)
        return await super().perform(action, about, request)


def raw(client: httpx.Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=30)


def everything(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(10_000):
        received += piece
    return received


def test_a_body_is_refused_where_none_is_taken_or_if_it_is_too_large() -> None:
    large = b"x" * (LARGEST_BODY_BYTES + 1)
    with serving(service := Service()) as client:
        for content in (large, iter([b"{}"])):
            refused = client.request("GET", "/status", content=content)
            assert (refused.status_code, "takes no body" in refused.text) == (413, True)
        for content in (large, iter([large[:-1], b"xx"])):
            refused = client.post(
                "/scopes/a/restart", content=content, headers={"tailrace-change": "1"}
            )
            assert (refused.status_code, "more than 65536 bytes" in refused.text) == (413, True)
    assert service.restarted == []


@pytest.mark.parametrize("sent", [b"", HEAD], ids=["nothing", "half a head"])
def test_a_client_that_says_no_more_is_hung_up_on(sent: bytes) -> None:
    with serving(Service(), patience_seconds=0.2) as client, raw(client) as slow:
        slow.sendall(sent)
        assert everything(slow) == b""


def test_an_answer_that_is_not_read_is_given_up() -> None:
    """It stays in memory until then."""
    service = Service()
    service.status = {"large": "x" * LARGE}
    with serving(service, patience_seconds=0.2) as client, raw(client) as left:
        left.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        select.select([left], [], [], 30)  # its first bytes have arrived
        until(lambda: client.head("/metrics").status_code == 200, "that it was given up")
        received = 0
        with suppress(ConnectionResetError):
            while piece := left.recv(1 << 20):
                received += len(piece)
        assert received < LARGE


def test_questions_that_wait_refuse_more_questions_but_no_order() -> None:
    """However many there are: a scope can always be paused."""
    service = Service()
    service.held = threading.Event()
    asked = b"GET /scopes/orders/why?key=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(service) as client, ExitStack() as waiting:
        try:
            connections = [waiting.enter_context(raw(client)) for _ in range(40)]
            for connection in connections:
                connection.sendall(asked)
            refused, _, _ = select.select(connections, [], [], 30)
            assert b"503" in refused[0].recv(100)
            paused = client.post("/scopes/orders/pause", headers={"tailrace-change": "1"})
            assert paused.status_code == 202
        finally:
            service.held.set()


def test_a_snapshot_that_waits_for_its_store_keeps_no_other_scope_waiting() -> None:
    service = Waiting()
    change = {"tailrace-change": "1"}
    with serving(service) as client, ThreadPoolExecutor(1) as threads:
        try:
            waiting = threads.submit(client.post, "/scopes/slow/snapshot", headers=change)
            assert service.begun.wait(30)
            answer = client.post("/scopes/orders/snapshot", headers=change, timeout=30)
            assert answer.status_code == 202
        finally:
            service.released.set()
        assert waiting.result().status_code == 202
