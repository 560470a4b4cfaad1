"""Clients of the HTTP port cannot delay the answer to a probe, which would restart the pod.

The tests use the real daemon and real sockets. A probe has the five seconds of the manifests.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders

PROBE_SECONDS = 5.0
CONNECTIONS = 600
"""More than twice as many as the service keeps open."""

HALF_A_HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
NOTHING = b""
UNREAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200
"""Requests whose answers fill every buffer between the service and a client that reads nothing."""


@pytest.fixture
def run(orders: Orders) -> Daemon:
    return orders.daemon().start()


def connect(run: Daemon) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PROBE_SECONDS)
    client.connect(("127.0.0.1", run.port))
    return client


def must_be_well(run: Daemon) -> None:
    """Probes like a kubelet: a new connection for each probe."""
    for path in ("/livez", "/readyz") * 10:
        with connect(run) as client:
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(4096).partition(b"\r\n")[0] == b"HTTP/1.1 200 OK"


@contextmanager
def beside(attack: Callable[[], None]) -> Iterator[None]:
    """Repeats the attack in threads while the block runs."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            with suppress(OSError):
                attack()

    threads = [threading.Thread(target=repeat) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_probes_are_answered_among_connections_that_are_left_open(run: Daemon) -> None:
    """Connections that send half a request or nothing, or do not read their answers."""
    for sent in (HALF_A_HEAD, NOTHING, UNREAD):
        with ExitStack() as held:
            for _ in range(CONNECTIONS):
                client = held.enter_context(connect(run))
                client.setblocking(False)
                with suppress(BlockingIOError):
                    client.send(sent)
            must_be_well(run)
            # While the requests of others take every turn, this one is refused: ask again.
            opened = until(lambda: run.metric("process_open_fds"), "a turn")
            assert opened < CONNECTIONS / 2 + 50, "the descriptors stay few"
    assert run.stop() == 0


def test_probes_are_answered_beside_requests_without_end(run: Daemon) -> None:
    """Each request is complete and expensive to answer."""

    def ask() -> None:
        with connect(run) as client:
            for path in ("/metrics", "/", "/status") * 20:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while client.recv(65536):
                pass

    with beside(ask):
        must_be_well(run)
    until(lambda: run.get("/metrics")[0] == 200, "metrics again")
