"""What a container's health check asks, and how it uses the answer."""

import socket
import threading

import pytest

from tailrace.observe.health_check import ask
from tests.unit.observe.serving import Service, serving


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_the_health_of_a_daemon_is_its_answer(host: str) -> None:
    service = Service()
    service.unready = ["orders is halted"]
    with serving(service) as client:
        port = client.base_url.port or 0
        assert ask(host, port, "/livez") == (True, "ok")
        assert ask(host, port, "/readyz") == (False, "orders is halted")


@pytest.mark.parametrize(("host", "asked"), [("127.0.0.1", "127.0.0.1"), ("::", "::1")])
def test_the_health_of_a_port_without_a_daemon_is_bad(host: str, asked: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        taken.bind((asked, 0))
        free = taken.getsockname()[1]
        answer = ask(host, free, "/livez")
    assert answer == (False, f"no answer from {asked}:{free}: Connection refused")


def test_the_health_of_a_daemon_that_never_answers_is_bad() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        well, answer = ask("127.0.0.1", mute.getsockname()[1], "/livez", seconds=0.05)
    assert (well, "timed out" in answer) == (False, True)


def test_the_health_of_another_protocol_is_bad() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            with listener.accept()[0] as other:
                other.recv(1000)
                other.sendall(b"SSH-2.0-what\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        well, answer = ask("127.0.0.1", listener.getsockname()[1], "/livez")
        thread.join()
    assert (well, "SSH-2.0-what" in answer) == (False, True)


def test_the_health_of_http_port_0_cannot_be_asked() -> None:
    well, answer = ask("127.0.0.1", 0, "/livez")
    assert (well, "http.port is 0" in answer) == (False, True)
