"""The HTTP API against its own OpenAPI document: nothing else is there, or is done."""

import json
import re
import time
from dataclasses import replace
from threading import get_ident
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from docs.http_reference import reference
from tailrace.control.action import Action
from tailrace.control.routes import routes
from tailrace.engine import WatcherState
from tailrace.observe.access import Access
from tailrace.observe.exchange import Call, Request
from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ScopeGauges
from tests.checkout import ROOT
from tests.unit.observe.serving import Service, serving

CHANGE = {"tailrace-change": "ann on laptop"}


def test_the_page_of_the_api_is_up_to_date() -> None:
    """If this fails, run ``make reference``."""
    assert (ROOT / "docs/http.md").read_text() == reference()


@pytest.fixture(scope="module")
def served() -> Any:
    service = Service()
    with serving(service) as client:
        yield service, client, client.get("/openapi.json").json()


def test_every_path_of_the_document_has_these_methods_and_no_others(
    served: tuple[Service, httpx.Client, dict[str, Any]],
) -> None:
    _, client, document = served
    for path, operations in document["paths"].items():
        place = re.sub(r"\{\w+\}", "orders", path)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            answer = client.request(method, place, headers=CHANGE)
            assert (answer.status_code == 405) is (method.lower() not in operations), (method, path)
            if answer.status_code == 405:
                assert method not in answer.headers["allow"]


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit the schema of a body, or of a key in it."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(map(fitting, schema["anyOf"]))
    match schema.get("type"):
        case "object":
            keys = {name: fitting(each) for name, each in schema.get("properties", {}).items()}
            needed = {name: keys.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(needed, optional=keys)
        case "array":
            return st.lists(fitting(schema["items"]), max_size=3)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "string": st.text(),
        "boolean": st.booleans(),
        "integer": st.integers(schema.get("minimum"), schema.get("maximum")),
        "null": st.none(),
        "number": st.floats(
            schema.get("minimum", schema.get("exclusiveMinimum")),
            schema.get("maximum"),
            exclude_min="exclusiveMinimum" in schema,
            allow_nan=False,
            allow_infinity=False,
        ),
    }
    return simple[schema["type"]]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
SLOW = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW
@given(data=st.data())
def test_whatever_is_sent_is_done_or_refused_in_one_line(
    served: tuple[Service, httpx.Client, dict[str, Any]], data: st.DataObject
) -> None:
    """A body that fits the schema is never malformed; one that does not is never accepted."""
    service, client, document = served
    posts = {path: each["post"] for path, each in document["paths"].items() if "post" in each}
    path = data.draw(st.sampled_from(sorted(posts)))
    fits = fitting(posts[path]["requestBody"]["content"]["application/json"]["schema"])
    name = data.draw(st.sampled_from(["orders", "busy", "nowhere"]) | st.text(min_size=1))
    chosen = data.draw(
        fits.map(lambda each: (True, each)) | ANYTHING.map(lambda each: (False, each))
    )
    body = data.draw(st.just(json.dumps(chosen[1]).encode()) | st.binary(max_size=40))
    fitted = chosen[0] and body == json.dumps(chosen[1]).encode()
    place = re.sub(r"\{\w+\}", lambda _: quote(name, safe=""), path)
    done = len(service.restarted) + len(service.ordered)
    answer = client.post(place, content=body, headers=CHANGE)
    acted = len(service.restarted) + len(service.ordered) > done
    assert answer.status_code in (202, 400, 404, 409, 422)
    assert acted is (answer.status_code == 202)
    assert not (fitted and answer.status_code == 400 and not path.endswith("seek"))
    if answer.status_code == 202:
        assert answer.json()["message"]
    else:
        assert answer.text.endswith("\n")
        assert len(answer.text.splitlines()) == 1 or "/" in name


def test_what_quotes_documents_needs_the_token_where_there_is_one() -> None:
    """And without one, only this machine may see it."""
    path, token = "/scopes/orders/positions", "0123456789abcdef-token"
    for access, sent, status in (
        (Access(loopback=True), {}, 200),
        (Access(loopback=False), {}, 403),
        (Access(loopback=True, token=token), {}, 401),
        (Access(loopback=False, token=token), {"authorization": f"Bearer {token}"}, 200),
    ):
        with serving(Service(), access) as client:
            assert client.get(path, headers=sent).status_code == status
            assert client.get(f"{path}?odd=1", headers=sent).status_code in (400, status)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[]", "the body is not a JSON object: send one"),
        (b"[" * 5000, "the body is not JSON"),
        (b'{"action": "start", "action": "cancel"}', "a key is given twice"),
        (b'{"acton": "start"}', "'acton' is not known here, which takes: handler, action, coll"),
        (b'{"action": 1}', "action: Input should be 'start', 'pause', 'resume' or 'cancel'"),
        (b'{"collections": "a"}', "collections: Input should be a valid array"),
    ],
)
def test_a_body_with_a_mistake_is_refused_with_what_is_possible(
    served: tuple[Service, httpx.Client, dict[str, Any]], body: bytes, message: str
) -> None:
    _, client, _ = served
    answer = client.post("/scopes/orders/snapshot", content=body, headers=CHANGE)
    assert (answer.status_code, message in answer.text) == (400, True), answer.text


def test_each_action_is_a_line_of_the_log_with_who_did_what(
    served: tuple[Service, httpx.Client, dict[str, Any]],
) -> None:
    _, client, _ = served
    with capture_logs() as logs:
        client.post("/scopes/orders/restart", headers=CHANGE)
        busy = client.post("/scopes/busy/restart", headers={"tailrace-change": "1"})
    assert (busy.status_code, "only a halted one" in busy.text) == (409, True)
    done, refused = logs
    assert done == {
        "event": "action.done",
        "log_level": "info",
        "action": "restart",
        "scope": "orders",
        "by": "ann on laptop at 127.0.0.1",
        "from": "halted",
        "to": "starting",
    }
    assert (refused["event"], refused["scope"], refused["by"]) == (
        "action.refused",
        "busy",
        "127.0.0.1",
    )
    assert "only a halted one" in refused["reason"]


@pytest.mark.parametrize("action", [each for each in routes() if isinstance(each, Action)])
async def test_a_service_that_is_starting_refuses_every_action(action: Action) -> None:
    api = replace(Service().api(), control=None)
    path = re.sub(r"\{\w+\}", "orders", action.path)
    sent = {b"host": b"localhost", b"tailrace-change": b"1"}
    call = api.find(Request(action.method, path, sent, "key=1" if path.endswith("why") else ""))
    assert isinstance(call, Call)
    answer = await call.answer(b"")
    assert (answer.status, answer.body[:24]) == (409, b"the service is starting:")


async def test_an_answer_is_made_into_text_beside_the_event_loop() -> None:
    """It may have thousands of rows that differ."""

    class Noting:
        def __str__(self) -> str:
            return str(get_ident())

    class Answering(Service):
        async def perform(self, action: Action, about: str, request: Any) -> Any:
            return {"thread": Noting()}

    sent = {b"host": b"localhost"}
    call = Answering().api().find(Request("GET", "/scopes/orders/verify", sent, "", "127.0.0.1"))
    assert isinstance(call, Call)
    answer = await call.answer(b"")
    assert json.loads(answer.body) != {"thread": str(get_ident())}


async def test_a_scrape_of_200_scopes_leaves_the_event_loop_free() -> None:
    """It takes less than 30 ms of the loop's thread: another makes the text."""
    metrics = Metrics(state.value for state in WatcherState)
    lags = {"read": 1.0, "handled": 1.0, "committed": 1.0}
    for n in range(200):
        metrics.watch(f"scope-{n}", lambda: ScopeGauges("streaming", lags=lags))
        metrics.recorder(f"scope-{n}", "audit")
    api = replace(Service().api(), registry=metrics.registry)
    took = []
    for _ in range(5):
        call = api.find(Request("GET", "/metrics", {b"host": b"localhost"}, "", "127.0.0.1"))
        assert isinstance(call, Call)
        began = time.thread_time()
        answer = await call.answer(b"")
        took.append(time.thread_time() - began)
        assert answer.body.count(b"tailrace_handler_seconds_count") == 200
    assert min(took) < 0.03
