"""What a container's health check asks, and what it makes of the answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import anyio
import pytest

from tailrace.observe.access import Access
from tailrace.observe.health_check import ask
from tailrace.observe.http import Health, HttpServer, bind
from tailrace.observe.metrics import Metrics


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server that lives, but is not ready."""
    health = Health(list, lambda: ["orders is halted"], dict, dict, str)
    with bind("0.0.0.0", 0) as listener:
        server = HttpServer(listener, Metrics([]).registry, health, Access(loopback=False))
        thread = threading.Thread(target=anyio.run, args=(server.run,))
        thread.start()
        yield server.port
        server.stop()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_daemon_that_is_well(port: int, host: str) -> None:
    assert ask(host, port, "/livez") == (True, "ok")


def test_a_daemon_that_is_not_says_why(port: int) -> None:
    assert ask("127.0.0.1", port, "/readyz") == (False, "orders is halted")


def test_every_address_of_the_second_protocol_is_asked_on_loopback() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        free = taken.getsockname()[1]
    assert ask("::", free, "/livez") == (False, f"no answer from ::1:{free}: Connection refused")


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        free = taken.getsockname()[1]
        well, answer = ask("127.0.0.1", free, "/livez")
    assert not well
    assert answer == f"no answer from 127.0.0.1:{free}: Connection refused"


def test_somebody_who_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        well, answer = ask("127.0.0.1", mute.getsockname()[1], "/livez", seconds=0.05)
    assert not well
    assert "timed out" in answer


def test_somebody_who_speaks_another_protocol() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            with listener.accept()[0] as other:
                other.recv(1000)
                other.sendall(b"SSH-2.0-what\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        well, answer = ask("127.0.0.1", listener.getsockname()[1], "/livez")
        thread.join()
    assert not well
    assert "SSH-2.0-what" in answer


def test_a_port_that_nobody_knows() -> None:
    well, answer = ask("127.0.0.1", 0, "/livez")
    assert not well
    assert "http.port is 0" in answer
