"""The paths of the small server, on loopback."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator

import anyio
import httpx
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from tailrace.errors import ConfigurationError
from tailrace.observe.access import Access
from tailrace.observe.http import Health, HttpServer, bind
from tailrace.observe.metrics import Metrics, ScopeGauges


class Answers:
    """What the service says of itself; a test changes it."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self.unready: list[str] = []
        self.restarted: list[str] = []

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
            lambda: self.dead,
            lambda: self.unready,
            lambda: {"version": "1", "scopes": {"orders": {"state": "streaming", "odd": {1, 2}}}},
            lambda: {"times": [], "scopes": {"orders": {"lag_seconds": [1, None]}}},
            self.restart,
        )


PATHS = "paths: / /metrics /livez /readyz /status /status/history /scopes/NAME/restart (POST)\n"
HERE = Access(loopback=True)


@pytest.fixture(scope="module")
def shared_answers() -> Answers:
    return Answers()


@pytest.fixture(scope="module")
def server(shared_answers: Answers) -> Iterator[str]:
    """One server for the module, in a thread; its URL."""
    metrics = Metrics(["streaming"])
    metrics.watch("orders", lambda: ScopeGauges("streaming"))
    with bind("127.0.0.1", 0) as listener:
        server = HttpServer(listener, metrics.registry, shared_answers.health, HERE)
        thread = threading.Thread(target=anyio.run, args=(server.run,))
        thread.start()
        yield f"http://127.0.0.1:{server.port}"
        server.stop()
        thread.join()


@pytest.fixture
def answers(shared_answers: Answers) -> Answers:
    shared_answers.dead, shared_answers.unready = [], []
    return shared_answers


@pytest.fixture
def client(server: str, answers: Answers) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, trust_env=False) as client:
        yield client


def test_metrics_are_prometheus_text(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    names = {family.name for family in families}
    assert "tailrace_watcher_state" in names


def test_metrics_are_openmetrics_for_those_who_ask(client: httpx.Client) -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = client.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert [*parse_openmetrics(answer.text)]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_all_is_well_in_one_word(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_readiness_is_refused_with_every_reason(client: httpx.Client, answers: Answers) -> None:
    answers.unready = ["scope orders: halted: act", "scope users: starting"]
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == "scope orders: halted: act\nscope users: starting\n"
    assert client.get("/livez").status_code == 200


def test_liveness_is_refused_with_its_reason(client: httpx.Client, answers: Answers) -> None:
    answers.dead = ["scope orders: no answer from the server for 400 s"]
    answer = client.get("/livez")
    assert (answer.status_code, answer.text) == (503, f"{answers.dead[0]}\n")
    assert client.get("/readyz").status_code == 200


def test_status_is_json_whatever_is_in_it(client: httpx.Client) -> None:
    answer = client.get("/status")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["scopes"]["orders"]["state"] == "streaming"
    assert answer.json()["changes_need"] == "header"


def test_history_is_json(client: httpx.Client) -> None:
    answer = client.get("/status/history")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["scopes"]["orders"]["lag_seconds"] == [1, None]


def test_the_page_may_run_nothing_but_itself(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        text = answer.text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[kind] == f"'sha256-{digest}'"


def test_nobody_stores_or_guesses_what_is_answered(client: httpx.Client) -> None:
    for path in ("/", "/status", "/metrics", "/livez", "/nowhere"):
        headers = client.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


@pytest.mark.parametrize("path", ["/index.html", "/metrics/", "/statu", "/livez/../status"])
def test_another_path_is_not_found_and_the_paths_are_told(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    if path.endswith("/status"):  # httpx resolves the dots
        assert answer.status_code == 200
    else:
        assert answer.status_code == 404
        assert answer.text == PATHS


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_reading_is_allowed(client: httpx.Client, method: str) -> None:
    answer = client.request(method, "/status")
    assert (answer.status_code, answer.text) == (405, "only GET\n")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/metrics", "/livez", "/readyz", "/status", "/nowhere"])
def test_head_is_get_without_a_body(client: httpx.Client, path: str) -> None:
    get, head = client.get(path), client.head(path)
    assert head.status_code == get.status_code
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert head.content == b""


def test_a_question_that_fails_is_an_error_of_that_question_only(
    client: httpx.Client, answers: Answers
) -> None:
    assert client.get("/livez").status_code == 200
    answers.unready = [1]  # type: ignore[list-item]
    assert client.get("/readyz").status_code == 500
    assert client.get("/livez").status_code == 200


async def test_stopping_frees_the_port(answers: Answers) -> None:
    listener = bind("127.0.0.1", 0)
    server = HttpServer(listener, Metrics([]).registry, answers.health, HERE)
    port = server.port
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(f"http://127.0.0.1:{port}/livez")
        server.stop()
    bind("127.0.0.1", port).close()


async def test_stopping_before_it_runs_ends_it_at_once(answers: Answers) -> None:
    """As when the service fails to start."""
    with bind("127.0.0.1", 0) as listener:
        server = HttpServer(listener, Metrics([]).registry, answers.health, HERE)
        server.stop()
        with anyio.fail_after(5):
            await server.run()


class TestBind:
    def test_to_port_0_takes_a_free_one(self) -> None:
        with bind("127.0.0.1", 0) as listener:
            assert listener.getsockname()[1] > 0

    def test_to_a_port_in_use_names_it_and_what_to_do(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ConfigurationError) as refused:
                bind("127.0.0.1", port)
        (problem,) = refused.value.problems
        assert problem.path == "http"
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in problem.message
        assert "http.port" in problem.message

    @pytest.mark.parametrize("host", ["no such host.invalid", "192.0.2.1"])
    def test_to_a_host_that_is_not_ours_is_refused(self, host: str) -> None:
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            bind(host, 0)

    def test_to_ipv6(self) -> None:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
        with bind("::1", 0) as listener:
            assert listener.family is socket.AF_INET6
