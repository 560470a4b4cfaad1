"""What becomes a span, and what is in it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tailrace.engine import Commit, RunIdentity
from tailrace.engine.ports import called_with
from tailrace.errors import CommandFailed, ConnectionFailed
from tailrace.event import ChangeEvent
from tailrace.event.reply import Reply
from tailrace.stream import LookUp
from tailrace.stream.driver_port import CursorRequest
from tailrace.telemetry.sdk import Spans
from tailrace.telemetry.spans import SPANS_A_SECOND
from tests.handlers import ORDERS, handler
from tests.unit.engine.changes import batch, change
from tests.unit.engine.stores import ScriptedStore

IDENTITY = RunIdentity("orders", "rs0", "f", 1)
PLAIN = "plain-value-4711"


class Recorded:
    """The port, and the spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Spans(provider.get_tracer("test"))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that limits of spans read, in seconds."""
    now = [100.0]
    monkeypatch.setattr("tailrace.telemetry.spans.time.monotonic", lambda: now[0])
    return now


def events(count: int) -> list[ChangeEvent]:
    return batch([change(n, fullDocument={"_id": n, "note": PLAIN}) for n in range(count)]).events()


class Source:
    """A driver, session, cursor and server at once, which answers as it is told."""

    def __init__(self, *answers: Reply | Exception) -> None:
        self.answers = list(answers)
        self.first, self.member = Reply(b"", ()), "db1:27017"

    async def start_session(self) -> Any:
        return self

    async def open(self, request: object, at_work: object) -> Any:
        return self

    async def next_batch(self, *_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look_up(self, wanted: object) -> Any:
        return await self.next_batch()


async def test_a_reply_with_changes_is_a_span_and_one_without_is_none(recorded: Recorded) -> None:
    gone = CommandFailed(f"about {PLAIN}", code=43)
    source = Source(Reply(b"", ()), Reply(b"", (0, 1, 1, 2)), gone)
    session = await recorded.tracing.driver("orders", source).start_session()
    cursor = await session.open(CursorRequest("shop", {"aggregate": "orders"}, {}), print)
    await cursor.next_batch()
    await cursor.next_batch()
    with pytest.raises(CommandFailed):
        await cursor.next_batch()
    opening, reply, failed = recorded.spans
    assert (opening.name, reply.name) == ("aggregate orders", "getMore orders")
    assert reply.attributes == {
        "db.system.name": "mongodb",
        "db.operation.name": "getMore",
        "db.namespace": "shop",
        "db.collection.name": "orders",
        "db.response.returned_rows": 2,
        "server.address": "db1",
        "server.port": 27017,
        "tailrace.scope": "orders",
        "tailrace.purpose": "stream",
    }
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "tailrace.errors.CommandFailed"
    assert failed.attributes["db.response.status_code"] == "43"
    assert not failed.status.is_ok
    assert PLAIN not in failed.to_json()


async def test_a_cluster_s_stream_has_no_collection(recorded: Recorded) -> None:
    session = await recorded.tracing.driver("all", Source()).start_session()
    await session.open(CursorRequest("admin", {"aggregate": 1}, {}), print)
    (opening,) = recorded.spans
    assert opening.name == "aggregate admin"
    assert "db.collection.name" not in (opening.attributes or {})


async def test_a_look_up_that_fails_is_a_span_with_the_error(recorded: Recorded) -> None:
    driver = recorded.tracing.driver("orders", Source(ConnectionFailed(PLAIN)))
    with pytest.raises(ConnectionFailed):
        await driver.look_up(LookUp("shop", "orders", None, b"", 1, None))
    (span,) = recorded.spans
    assert span.name == "find orders"
    assert "test_spans.py" in str((span.events[0].attributes or {})["exception.stacktrace"])
    assert PLAIN not in span.to_json()


async def test_a_save_is_a_span_and_a_load_is_none(recorded: Recorded) -> None:
    store = recorded.tracing.store("orders", ScriptedStore())
    claimed = await store.claim("orders", 1)
    await store.save(replace(claimed, sequence=1))
    assert await store.load("orders") is not None
    assert recorded.names == ["save orders"]


async def test_a_call_with_a_batch_is_a_span_and_gets_what_it_got(recorded: Recorded) -> None:
    calls = list[Any]()

    async def take(events: Any) -> None:
        calls.append(events)

    async def commit(identity: RunIdentity) -> None:
        calls.append("commit")

    plain = handler("file", on_events=take, raw=True, commit=Commit(commit, 1, 1, 1.0))
    traced = recorded.tracing.handler(ORDERS, plain)
    call, payload = called_with(traced.calls, events(3))
    await call(payload, IDENTITY)
    assert traced.commit is not None
    await traced.commit.call(IDENTITY)
    assert calls == [[event.raw for event in events(3)], "commit"]
    assert recorded.names == ["process file", "commit file"]
    call_span, commit_span = recorded.spans
    assert call_span.attributes == {
        "messaging.system": "mongodb",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "file",
        "messaging.batch.message_count": 3,
        "db.namespace": "shop",
        "db.collection.name": "orders",
    }
    assert (commit_span.attributes or {})["messaging.operation.type"] == "settle"
    assert PLAIN not in call_span.to_json()


async def test_of_calls_with_one_event_some_a_second_are_spans(
    recorded: Recorded, clock: list[float]
) -> None:
    handled = list[int]()

    async def take(event: ChangeEvent) -> None:
        handled.append(1)

    calls = recorded.tracing.handler(ORDERS, handler("each", take)).calls
    for second in (1, 2):
        for event in events(3 * SPANS_A_SECOND):
            await calls.call(event, IDENTITY)
        assert len(recorded.spans) == second * SPANS_A_SECOND
        clock[0] += 1.0
    assert len(handled) == 6 * SPANS_A_SECOND


async def test_of_replies_some_a_second_are_spans_and_each_that_fails(
    recorded: Recorded, clock: list[float]
) -> None:
    full = Reply(b"", (0, 1, 1, 2))
    many = [full] * (SPANS_A_SECOND + 7)
    source = Source(*many, ConnectionFailed(PLAIN), *many)
    session = await recorded.tracing.driver("orders", source).start_session()
    cursor = await session.open(CursorRequest("shop", {"aggregate": "orders"}, {}), print)
    for _ in many:
        assert await cursor.next_batch() is full
    with pytest.raises(ConnectionFailed):
        await cursor.next_batch()
    clock[0] += 1.0
    for _ in many:
        await cursor.next_batch()
    replies = [span for span in recorded.spans if span.name == "getMore orders"]
    assert [span.status.is_ok for span in replies].count(False) == 1
    assert len(replies) == 2 * SPANS_A_SECOND + 1


async def test_of_calls_with_a_batch_some_a_second_are_spans_and_each_that_fails(
    recorded: Recorded, clock: list[float]
) -> None:
    scope = replace(ORDERS, trace="trace")
    parent = f"00-{1:032x}-{2:016x}-01"
    fails = batch([change(1, fullDocument={"_id": 1, "trace": parent})]).events()

    async def take(events: Any) -> None:
        if len(events) == 1:
            raise ValueError(PLAIN)

    calls = recorded.tracing.handler(scope, handler("file", on_events=take)).calls
    for _ in range(SPANS_A_SECOND + 7):
        call, payload = called_with(calls, events(3))
        await call(payload, IDENTITY)
    assert len(recorded.spans) == SPANS_A_SECOND
    call, payload = called_with(calls, fails)
    with pytest.raises(ValueError, match=PLAIN):
        await call(payload, IDENTITY)
    failed = recorded.spans[-1]
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert (failed.attributes or {})["messaging.batch.message_count"] == 1
    assert [link.context.trace_id for link in failed.links] == [1]
    assert (failed.end_time or 0) >= (failed.start_time or 0) > 0
    assert PLAIN not in failed.to_json()


async def test_the_error_of_a_call_is_on_its_span_without_its_text(recorded: Recorded) -> None:
    async def fail(events: Any) -> None:
        raise ValueError(PLAIN)

    traced = recorded.tracing.handler(ORDERS, handler("file", on_events=fail))
    call, payload = called_with(traced.calls, events(1))
    with pytest.raises(ValueError, match=PLAIN):
        await call(payload, IDENTITY)
    (span,) = recorded.spans
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert PLAIN not in span.to_json()
    assert recorded.tracing.ids(None, "", {}) == {}


async def test_a_call_links_to_the_traces_that_its_documents_carry(recorded: Recorded) -> None:
    async def take(events: Any) -> None: ...

    scope = replace(ORDERS, trace="trace")
    parents = [f"00-{n:032x}-{n:016x}-01" for n in (1, 2, 2)]
    documents = [change(n, fullDocument={"_id": n, "trace": p}) for n, p in enumerate(parents)]
    documents += [change(9, fullDocument={"_id": 9, "trace": PLAIN})]
    carried = batch(documents).events()
    traced = recorded.tracing.handler(scope, handler("file", on_events=take))
    call, payload = called_with(traced.calls, carried)
    await call(payload, IDENTITY)
    await recorded.tracing.handler(scope, handler("each", take)).calls.call(carried[0], IDENTITY)
    several, one = recorded.spans
    assert [link.context.trace_id for link in several.links] == [1, 2]
    assert [(link.context.span_id, link.context.is_remote) for link in one.links] == [(1, True)]
    assert PLAIN not in several.to_json()
