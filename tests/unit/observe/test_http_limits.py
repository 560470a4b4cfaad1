"""Clients that waste the small server are given up, and keep nobody waiting."""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import httpx
import pytest

from tailrace.observe.listener import Connections
from tests.daemon import until
from tests.unit.observe.serving import Service, serving

HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


def raw(client: httpx.Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=30)


def everything(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(10_000):
        received += piece
    return received


@pytest.mark.parametrize(("method", "path"), [("GET", "/status"), ("POST", "/scopes/a/restart")])
def test_a_body_is_refused(method: str, path: str) -> None:
    with serving(service := Service()) as client:
        for content in (b"x" * 100_000, iter([b"x"])):
            answer = client.request(method, path, content=content, headers={"tailrace-change": "1"})
            assert (answer.status_code, answer.text) == (413, "no request here takes a body\n")
    assert service.restarted == []


@pytest.mark.parametrize("sent", [b"", HEAD], ids=["nothing", "half a head"])
def test_a_client_that_says_no_more_is_hung_up_on(sent: bytes) -> None:
    with serving(Service(), patience_seconds=0.2) as client, raw(client) as slow:
        slow.sendall(sent)
        assert everything(slow) == b""


class TestUnread:
    """Answers stay in memory until they are taken in."""

    LARGE = 32 * 1024 * 1024
    """More than all that the system keeps on the way to a client."""

    @pytest.fixture
    def service(self) -> Service:
        service = Service()
        service.status = {"large": "x" * self.LARGE}
        return service

    def ask_and_leave(self, client: httpx.Client) -> socket.socket:
        left = raw(client)
        left.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        select.select([left], [], [], 30)  # its beginning has come
        return left

    def answers(self, client: httpx.Client) -> bool:
        return client.head("/metrics").status_code == 200

    def test_an_answer_that_is_not_read_is_given_up(self, service: Service) -> None:
        with (
            serving(service, patience_seconds=0.2) as client,
            self.ask_and_leave(client) as left,
        ):
            until(lambda: self.answers(client), "that it was given up")
            received = 0
            with suppress(ConnectionResetError):
                while piece := left.recv(1 << 20):
                    received += len(piece)
            assert received < self.LARGE

    def test_while_much_is_unread_only_probes_are_answered(self, service: Service) -> None:
        with serving(service) as client:
            with self.ask_and_leave(client):
                refused = client.get("/status")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert refused.headers["connection"] == "close"
                for path in ("/livez", "/readyz"):
                    assert client.get(path).status_code == 200
            until(lambda: self.answers(client), "that others are answered again")


class TestConnections:
    class One:
        """A connection that notes what becomes of it."""

        def __init__(self) -> None:
            self.transport = self
            self.abandoned = False

        def get_write_buffer_size(self) -> int:
            return 5

        def abandon(self) -> None:
            self.abandoned = True

    def test_that_are_too_many_end_with_the_one_that_has_done_nothing_for_longest(self) -> None:
        connections = Connections(most=3)
        first, second, third, fourth, fifth = (self.One() for _ in range(5))
        for one in (first, second, third):
            connections.add(one)
        connections.used(first)
        connections.add(fourth)
        assert second.abandoned
        connections.used(second)  # its last answer was complete in the same moment
        connections.remove(third)
        connections.add(fifth)
        assert connections.unread == 15
        assert not any(one.abandoned for one in (first, third, fourth, fifth))
