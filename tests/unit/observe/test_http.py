"""The paths of the small server, and which clients they answer."""

import base64
import hashlib
from collections.abc import Iterator

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tailrace.observe.access import Access
from tailrace.observe.http import HttpServer, bind
from tests.guards import against_hanging
from tests.unit.observe.serving import Service, serving

TOKEN = "0123456789abcdef-token"
CHANGE = {"tailrace-change": "1"}
SNAPSHOT = "/scopes/orders/snapshot"
BEARER = {"authorization": f"Bearer {TOKEN}"}
RESTART = "/scopes/orders/restart"


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of a server that only this machine can reach."""
    with serving(service) as client:
        yield client


def test_metrics_are_prometheus_text(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert "tailrace_watcher_state" in names


def test_probes_say_ok_or_every_reason(client: httpx.Client, service: Service) -> None:
    for path in ("/livez", "/readyz"):
        answer = client.get(path)
        assert (answer.status_code, answer.text) == (200, "ok\n")
    service.unready = ["scope orders: halted: act", "scope users: starting"]
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == "scope orders: halted: act\nscope users: starting\n"
    assert client.get("/livez").status_code == 200
    service.dead, service.unready = ["scope orders: no answer for 400 s"], []
    answer = client.get("/livez")
    assert (answer.status_code, answer.text) == (503, f"{service.dead[0]}\n")
    assert client.get("/readyz").status_code == 200


def test_a_degraded_service_is_ready_and_says_why(client: httpx.Client, service: Service) -> None:
    service.degraded = ["scope orders: 1 dead letter waits", "scope users: 2 dead letters wait"]
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text.splitlines()) == (
        200,
        ["degraded", *service.degraded],
    )
    assert client.get("/livez").text == "ok\n"
    service.unready = ["scope orders: halted: act"]
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "scope orders: halted: act\n")


def test_status_is_json_whatever_is_in_it(client: httpx.Client) -> None:
    answer = client.get("/status")
    assert answer.headers["content-type"] == "application/json"
    assert "orders" in answer.json()["scopes"]
    assert answer.json()["changes_need"] == "header"


def test_the_page_may_run_nothing_but_itself(client: httpx.Client) -> None:
    answer = client.get("/")
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


@pytest.mark.parametrize("path", ["/", "/metrics", "/livez", "/status", "/nowhere"])
def test_no_answer_is_stored_or_guessed_and_head_has_no_body(
    client: httpx.Client, path: str
) -> None:
    get, head = client.get(path), client.head(path)
    for name, value in (
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ):
        assert get.headers[name] == value
    assert "server" not in get.headers
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert int(head.headers["content-length"]) > 0


def test_other_paths_and_methods_are_refused(client: httpx.Client) -> None:
    for path in ("/index.html", "/metrics/", "/statu", "/scopes/a/b/restart"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.text.startswith(
            f"there is nothing at '{path}'; the paths are: /, /dead-letters, "
        )
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = client.request(method, "/status")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_question_that_fails_is_an_error_of_that_question_only(
    client: httpx.Client, service: Service
) -> None:
    service.unready = [1]  # type: ignore[list-item]
    assert client.get("/readyz").status_code == 500
    assert client.get("/livez").status_code == 200


def test_a_restart_on_loopback_needs_a_header_that_no_foreign_page_can_send(
    client: httpx.Client, service: Service
) -> None:
    with capture_logs() as logs:
        refused = client.post(RESTART)
    assert (refused.status_code, service.restarted) == (403, [])
    assert "Tailrace-Change" in refused.text
    assert [(log["event"], log["scope"]) for log in logs] == [("action.refused", "orders")]
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    answer = client.options(RESTART, headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]
    allowed = client.post(RESTART, headers=CHANGE)
    assert (allowed.status_code, service.restarted) == (202, ["orders"])


def test_a_restart_needs_the_token_where_there_is_one(service: Service) -> None:
    with serving(service, Access(loopback=False, token=TOKEN)) as client:
        refused = client.post(RESTART, headers=CHANGE)
        assert (refused.status_code, service.restarted) == (401, [])
        assert refused.headers["www-authenticate"] == "Bearer"
        assert client.post(RESTART, headers=BEARER).status_code == 202


def test_reading_needs_the_token_where_everything_is_protected(service: Service) -> None:
    """Probes are answered to everybody, but without the reasons."""
    access = Access(loopback=False, token=TOKEN, protect_reads=True)
    service.unready = ["scope orders: halted: the reason"]
    with serving(service, access) as client:
        for path in ("/", "/history", "/metrics", "/status"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Basic ")
            assert client.get(path, headers=BEARER).status_code == 200
            assert client.get(path, auth=("me", TOKEN)).status_code == 200
        answer = client.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "no\n")
        assert client.get("/readyz", headers=BEARER).text == f"{service.unready[0]}\n"
        service.unready, service.degraded = [], ["scope orders: 1 dead letter waits"]
        answer = client.get("/readyz")
        assert (answer.status_code, answer.text) == (200, "degraded\n")


QUOTED = "document {'_id': 'anna@example.org'}"


def test_beyond_loopback_texts_that_quote_documents_need_the_token(service: Service) -> None:
    """Others get states, names, times and numbers."""
    now = "2026-11-26T12:00:00+00:00"
    service.unready = [f"scope orders: halted: {QUOTED}"]
    service.degraded = [QUOTED]
    service.status = {
        "version": "1.0",
        "degraded": [QUOTED],
        "server": {"up": True, "trouble": QUOTED},
        "members": [{"name": "one", "scopes": ["orders"], "scope_states": {"orders": QUOTED}}],
        "scopes": {
            "orders": {
                "state": "halted",
                "reason": QUOTED,
                "since": now,
                "lag_seconds": {"read": 1.5},
                "handlers": {"file": {
                    "ok": 7, "columns": {"orders": [QUOTED]}, "down_cause": QUOTED
                }},
                "snapshot": {"mode": "initial", "filter": QUOTED, "collections": [
                    {"collection": "shop.orders", "reason": QUOTED, "scanned": 5}
                ]},
                "last_error": QUOTED,
                "errors": [{"message": QUOTED, "first_at": now, "times": 3}],
                "what_others_add": QUOTED,
            }
        },
    }  # fmt: skip
    with serving(service, Access(loopback=False, token=TOKEN)) as client:
        for path in ("/", "/history", "/metrics", "/status", "/livez", "/readyz"):
            assert "anna" not in client.get(path).text
        shown = client.get("/status").json()
        scope = shown["scopes"]["orders"]
        assert (scope["state"], scope["since"], scope["lag_seconds"]) == (
            "halted", now, {"read": 1.5},
        )  # fmt: skip
        assert scope["reason"] == scope["errors"][0]["message"] == "hidden without the token"
        assert scope["handlers"]["file"] == {
            "ok": 7,
            "columns": {"orders": ["hidden without the token"]},
            "down_cause": "hidden without the token",
        }  # fmt: skip
        assert (shown["version"], shown["members"][0]["scopes"]) == ("1.0", ["orders"])
        assert client.get("/readyz").text == "no\n"
        whole = client.get("/status", headers=BEARER).json()
        assert whole["scopes"]["orders"]["reason"] == QUOTED
        assert QUOTED in client.get("/readyz", headers=BEARER).text
        service.unready = []
        assert client.get("/readyz").text == "degraded\n"
    with serving(service, Access(loopback=True, token=TOKEN)) as client:
        assert QUOTED in client.get("/readyz").text
        assert client.get("/status").json()["scopes"]["orders"]["reason"] == QUOTED


async def test_stopping_frees_the_port_also_before_it_runs(service: Service) -> None:
    with bind("127.0.0.1", 0) as listener:
        server = HttpServer(listener, service.api())
        port = server.port
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run)
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get(f"http://127.0.0.1:{port}/livez")
            server.stop()
    with bind("127.0.0.1", port) as listener:
        server = HttpServer(listener, service.api())
        server.stop()
        with against_hanging():
            await server.run()


def test_an_operator_starts_a_snapshot(client: httpx.Client, service: Service) -> None:
    filter = '{"status": "open"}'
    chosen = {"collections": ["a", "b c"], "filter": filter}
    begun = client.post(SNAPSHOT, json=chosen, headers=CHANGE)
    asked = client.post(SNAPSHOT, params=chosen, headers=CHANGE)
    paused = client.post(SNAPSHOT, params={"action": "pause"}, headers=CHANGE)
    assert [each.status_code for each in (begun, asked, paused)] == [202] * 3
    assert service.ordered == [
        *[("orders", "start", ("a", "b c"), filter)] * 2,
        ("orders", "pause", (), ""),
    ]


def test_an_order_for_a_snapshot_that_is_refused_says_why(
    client: httpx.Client, service: Service
) -> None:
    busy = client.post("/scopes/busy/snapshot", headers=CHANGE)
    odd = client.post(SNAPSHOT, params={"filter": "odd"}, headers=CHANGE)
    action = client.post(SNAPSHOT, params={"action": "restart"}, headers=CHANGE)
    assert (busy.status_code, busy.text) == (409, "snapshot 5f3a is not over\n")
    assert (odd.status_code, action.status_code) == (400, 400)
    assert "'start', 'pause', 'resume' or 'cancel'" in action.text
    assert client.post("/scopes/nowhere/snapshot", headers=CHANGE).status_code == 404
    assert client.post(SNAPSHOT).status_code == 403
    assert client.get(SNAPSHOT).status_code == 405
    assert service.ordered == []
