"""A driver whose answers are a list: each aggregate and each getMore takes the next of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, ConnectionFailed, DriverError
from tailrace.event.reply import Reply, read_reply
from tailrace.model import ResumeToken, Scope
from tailrace.stream import AtWork, CursorRequest, LookUp
from tests.unit.event.documents import reply as encoded
from tests.unit.event.finds import answer

SCOPE = Scope("orders", "shop", "orders")
LABEL = "ResumableChangeStreamError"
NETWORK = ConnectionFailed("AutoReconnect: connection closed")
TIME = Timestamp(1_700_000_000, 7)


def token(name: str) -> ResumeToken:
    """A token that is as opaque as they come."""
    return ResumeToken.of({"_data": name})


def event(name: str, operation: str = "insert", **fields: Any) -> dict[str, Any]:
    """An event whose token is `name`."""
    return {"_id": {"_data": name}, "operationType": operation, **fields}


def reply(
    *events: Mapping[str, Any] | str,
    post_batch: str | None = None,
    time: Timestamp | None = TIME,
    closed: bool = False,
) -> Reply:
    """A server's answer; an event given as text is an insert with that token."""
    documents = [event(e) if isinstance(e, str) else dict(e) for e in events]
    return read_reply(
        encoded(
            documents,
            token=None if post_batch is None else {"_data": post_batch},
            time=time,
            cursor_id=0 if closed else 42,
        )
    )


def failure(code: int, *labels: str, wire_version: int = 21) -> CommandFailed:
    """The server's own error."""
    return CommandFailed("scripted", code=code, labels=frozenset(labels), wire_version=wire_version)


@dataclass
class FakeDriver:
    """`aggregates` and `get_mores` are the answers; the rest is what was asked."""

    aggregates: list[Reply | Exception]
    get_mores: list[Reply | Exception] = field(default_factory=list)
    requests: list[CursorRequest] = field(default_factory=list)
    sessions: list[FakeSession] = field(default_factory=list)
    kills: int = 0
    at_work: AtWork | None = None
    """Whom the newest cursor tells that its server is at work."""
    documents: Sequence[Mapping[str, Any]] = ()
    """What look-ups find, up to `found_bytes` a reply; `refusals` are errors of the next ones."""
    found_bytes: int = 1 << 40
    refusals: list[DriverError] = field(default_factory=list)
    look_ups: list[LookUp] = field(default_factory=list)
    found: anyio.Event | None = None
    """Look-ups wait for it."""
    find_seconds: float = 0.0
    read_seconds: float = 0.0
    waits: list[int | None] = field(default_factory=list)
    most: list[int | None] = field(default_factory=list)
    """How many events each read asked for."""
    """How long each read was to wait for a change."""
    _reading: bool = False

    async def start_session(self) -> FakeSession:
        self.sessions.append(FakeSession(self))
        return self.sessions[-1]

    async def look_up(self, wanted: LookUp) -> Reply:
        self.look_ups.append(wanted)
        await anyio.sleep(self.find_seconds)
        if self.found is not None:
            await self.found.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        return answer(wanted.filter, self.documents, self.found_bytes)

    @property
    def reads(self) -> int:
        """How many there were."""
        return len(self.waits)

    async def read(self, await_ms: int | None) -> Reply:
        self.waits.append(await_ms)
        assert not self._reading, "one task reads at a time"
        self._reading = True
        try:
            if self.read_seconds:
                await anyio.sleep(self.read_seconds)
            return _next(self.get_mores)
        finally:
            self._reading = False

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The start options of every aggregate, decoded."""
        stages = [request.aggregate["pipeline"][0]["$changeStream"] for request in self.requests]
        names = ("resumeAfter", "startAfter", "startAtOperationTime")
        return [
            {
                name: value if isinstance(value, Timestamp) else dict(value)["_data"]
                for name, value in stage.items()
                if name in names
            }
            for stage in stages
        ]


@dataclass
class FakeSession:
    driver: FakeDriver
    opened: int = 0
    closed: bool = False

    async def open(self, request: CursorRequest, at_work: AtWork) -> FakeCursor:
        self.opened += 1
        self.driver.at_work = at_work
        self.driver.requests.append(request)
        return FakeCursor(self.driver, _next(self.driver.aggregates))

    async def aclose(self) -> None:
        self.closed = True


@dataclass
class FakeCursor:
    driver: FakeDriver
    first: Reply
    killed: bool = False
    member: str = "db1:27017"

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        assert not self.killed, "a cursor that was left is read"
        self.driver.most.append(most)
        return await self.driver.read(await_ms)

    def kill(self) -> None:
        assert not self.killed, "a cursor is left once"
        self.killed = True
        self.driver.kills += 1


def _next(answers: list[Reply | Exception]) -> Reply:
    assert answers, "the script is at its end"
    answer = answers.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def tokens(events: Sequence[Any]) -> list[str]:
    """The tokens' texts of events."""
    return [e.id["_data"] for e in events]
