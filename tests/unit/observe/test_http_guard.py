"""What the small server refuses: strangers, changes without leave, and clients that waste it."""

from __future__ import annotations

import base64
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import anyio
import httpx
import pytest
from structlog.testing import capture_logs

from tailrace.observe.access import Access
from tailrace.observe.http import Health, HttpServer, bind
from tailrace.observe.listener import Connections
from tailrace.observe.metrics import Metrics
from tests.daemon import until

TOKEN = "0123456789abcdef-token"
CHANGE = {"tailrace-change": "1"}
BEARER = {"authorization": f"Bearer {TOKEN}"}
RESTART = "/scopes/orders/restart"


class Service:
    """What a change would change."""

    def __init__(self) -> None:
        self.restarted: list[str] = []
        self.reasons = ["scope orders: halted: the reason"]
        self.status: dict[str, str] = {}

    def restart(self, scope: str) -> str:
        if scope == "nowhere":
            raise LookupError(scope)
        if scope == "busy":
            return "scope 'busy' is streaming: only a halted one is restarted"
        self.restarted.append(scope)
        return ""

    @property
    def health(self) -> Health:
        return Health(
            lambda: self.reasons, lambda: self.reasons, lambda: self.status, dict, self.restart
        )


Serve = Callable[..., httpx.Client]


@pytest.fixture
def service() -> Service:
    return Service()


@contextmanager
def running(service: Service, access: Access, patience_seconds: float) -> Iterator[int]:
    with bind("127.0.0.1", 0) as listener:
        registry = Metrics([]).registry
        server = HttpServer(
            listener, registry, service.health, access, patience_seconds=patience_seconds
        )
        thread = threading.Thread(target=anyio.run, args=(server.run,))
        thread.start()
        try:
            yield server.port
        finally:
            server.stop()
            thread.join()


@pytest.fixture
def serve(service: Service) -> Iterator[Serve]:
    """Starts a server with that access; a client of it."""
    with ExitStack() as stack:

        def start(access: Access, patience_seconds: float = 30) -> httpx.Client:
            port = stack.enter_context(running(service, access, patience_seconds))
            client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
            return stack.enter_context(client)

        yield start


def raw(client: httpx.Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=30)


class TestRestart:
    def test_on_loopback_needs_a_header_that_no_foreign_page_can_send(
        self, serve: Serve, service: Service
    ) -> None:
        client = serve(Access(loopback=True))
        with capture_logs() as logs:
            refused = client.post(RESTART)
        assert (refused.status_code, service.restarted) == (403, [])
        assert "Tailrace-Change" in refused.text
        assert [(log["event"], log["scope"]) for log in logs] == [("change.refused", "orders")]
        allowed = client.post(RESTART, headers=CHANGE)
        assert (allowed.status_code, service.restarted) == (202, ["orders"])

    def test_a_browser_that_asks_whether_it_may_is_not_told_so(self, serve: Serve) -> None:
        client = serve(Access(loopback=True))
        asked = {
            "origin": "http://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "tailrace-change",
        }
        answer = client.options(RESTART, headers=asked)
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]

    def test_with_a_token_needs_it(self, serve: Serve, service: Service) -> None:
        client = serve(Access(loopback=False, token=TOKEN))
        refused = client.post(RESTART, headers=CHANGE)
        assert (refused.status_code, service.restarted) == (401, [])
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.text.count("\n") == 1
        assert TOKEN not in refused.text
        assert client.post(RESTART, headers=BEARER).status_code == 202
        assert service.restarted == ["orders"]

    def test_beyond_loopback_without_a_token_is_refused(
        self, serve: Serve, service: Service
    ) -> None:
        client = serve(Access(loopback=False))
        refused = client.post(RESTART, headers=CHANGE | BEARER)
        assert (refused.status_code, service.restarted) == (403, [])
        assert "http.token" in refused.text
        assert client.get("/status").status_code == 200

    def test_says_why_not(self, serve: Serve) -> None:
        client = serve(Access(loopback=True))
        busy = client.post("/scopes/busy/restart", headers=CHANGE)
        assert (busy.status_code, "only a halted one" in busy.text) == (409, True)
        assert client.post("/scopes/nowhere/restart", headers=CHANGE).status_code == 404
        assert client.post("/scopes/a/b/restart", headers=CHANGE).status_code == 404

    @pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
    def test_is_a_post(self, serve: Serve, service: Service, method: str) -> None:
        answer = serve(Access(loopback=True)).request(method, RESTART, headers=CHANGE)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert service.restarted == []


class TestReading:
    @pytest.mark.parametrize("path", ["/", "/metrics", "/status", "/status/history"])
    def test_where_everything_is_protected_needs_the_token(self, serve: Serve, path: str) -> None:
        client = serve(Access(loopback=False, token=TOKEN, protect_reads=True))
        refused = client.get(path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        assert client.get(path, headers=BEARER).status_code == 200
        assert client.get(path, auth=("me", TOKEN)).status_code == 200
        assert client.get(path, auth=("me", "wrong")).status_code == 401

    def test_probes_are_answered_to_everybody_but_not_why(
        self, serve: Serve, service: Service
    ) -> None:
        client = serve(Access(loopback=False, token=TOKEN, protect_reads=True))
        for path in ("/livez", "/readyz"):
            told = client.get(path)
            assert (told.status_code, told.text) == (503, "no\n")
            assert client.get(path, headers=BEARER).text == f"{service.reasons[0]}\n"
        service.reasons = []
        assert client.get("/readyz").status_code == 200

    def test_a_name_that_is_not_this_machines_is_refused_on_loopback(self, serve: Serve) -> None:
        client = serve(Access(loopback=True))
        for path in ("/", "/status", "/metrics", RESTART):
            answer = client.get(path, headers={"host": "rebound.example:9464"})
            assert (answer.status_code, answer.text.count("\n")) == (403, 1)
        answer = client.post(RESTART, headers={"host": "rebound.example", **CHANGE})
        assert answer.status_code == 403


class TestWaste:
    @pytest.mark.parametrize("path", ["/status", RESTART])
    def test_a_body_is_refused(self, serve: Serve, service: Service, path: str) -> None:
        client = serve(Access(loopback=True))
        method = "POST" if path == RESTART else "GET"
        for content in (b"x" * 100_000, iter([b"x"])):
            answer = client.request(method, path, content=content, headers=CHANGE)
            assert (answer.status_code, answer.text) == (413, "no request here takes a body\n")
        assert service.restarted == []

    def test_a_head_without_end_is_refused(self, serve: Serve) -> None:
        client = serve(Access(loopback=True))
        with raw(client) as endless:
            endless.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20_000)
            assert endless.recv(100).startswith(b"HTTP/1.1 400")

    def test_a_head_that_is_never_complete_is_hung_up_on(self, serve: Serve) -> None:
        client = serve(Access(loopback=True), patience_seconds=0.2)
        with raw(client) as slow:
            slow.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
            assert slow.recv(100) == b""

    def test_so_is_one_behind_an_answer(self, serve: Serve) -> None:
        client = serve(Access(loopback=True), patience_seconds=0.5)
        with raw(client) as slow:
            request = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
            slow.sendall(request + b"GET /nowhere HTTP/1.1\r\nX: ")
            received = b""
            while piece := slow.recv(10_000):
                received += piece
            assert received.startswith(b"HTTP/1.1 404")
            assert received.count(b"HTTP/1.1") == 1

    def test_a_connection_that_says_nothing_is_hung_up_on(self, serve: Serve) -> None:
        client = serve(Access(loopback=True), patience_seconds=0.2)
        with raw(client) as silent:
            assert silent.recv(100) == b""

    def test_a_connection_that_is_used_stays(self, serve: Serve) -> None:
        client = serve(Access(loopback=True), patience_seconds=30)
        with raw(client) as used:
            for _ in range(3):
                used.sendall(b"HEAD /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert used.recv(10_000).startswith(b"HTTP/1.1 404")


class TestUnread:
    """Answers stay in memory until they are taken in."""

    LARGE = 32 * 1024 * 1024
    """More than all that the system keeps on the way to a client."""

    def ask_and_leave(self, client: httpx.Client) -> socket.socket:
        left = raw(client)
        left.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        select.select([left], [], [], 30)  # its beginning has come
        return left

    def test_an_answer_that_is_not_read_is_given_up(self, serve: Serve, service: Service) -> None:
        service.status = {"large": "x" * self.LARGE}
        client = serve(Access(loopback=True), patience_seconds=0.2)
        with self.ask_and_leave(client) as left:
            until(lambda: self.answers(client), "that it was given up")
            received = 0
            with suppress(ConnectionResetError):
                while piece := left.recv(1 << 20):
                    received += len(piece)
            assert received < self.LARGE

    def test_while_much_is_unread_only_probes_are_answered(
        self, serve: Serve, service: Service
    ) -> None:
        service.status = {"large": "x" * self.LARGE}
        service.reasons = []
        client = serve(Access(loopback=True))
        with self.ask_and_leave(client):
            refused = client.get("/status")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.headers["connection"] == "close"
            assert [client.get(path).status_code for path in ("/livez", "/readyz")] == [200, 200]
        until(lambda: self.answers(client), "that others are answered again")

    def answers(self, client: httpx.Client) -> bool:
        return client.head("/metrics").status_code == 200


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
        connections.remove(third)
        connections.add(fifth)
        assert connections.unread == 15
        assert not any(one.abandoned for one in (first, third, fourth, fifth))

    def test_that_were_given_up_are_not_there_any_more(self) -> None:
        connections = Connections(most=1)
        first, second = self.One(), self.One()
        connections.add(first)
        connections.add(second)
        connections.used(first)  # its last answer was complete in the same moment
        connections.remove(first)
        assert connections.unread == 5


def test_credentials_in_a_header_of_the_wrong_form_are_no_error(serve: Serve) -> None:
    client = serve(Access(loopback=False, token=TOKEN, protect_reads=True))
    for given in (b"Basic \xff", b"Basic " + base64.b64encode(b"\xff:\xff"), b"Bearer \xe9"):
        assert client.get("/status", headers={b"authorization": given}).status_code == 401
