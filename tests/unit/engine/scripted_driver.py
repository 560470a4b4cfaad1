"""A driver on one small oplog in memory, which answers a stream as mongod would.

It is a :class:`tailrace.stream.Driver`; ``test_scripted_driver.py`` tests it against the port.
Errors are scripted by the number of events that a cursor has returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import anyio
import bson

from tailrace.errors import CommandFailed, ConnectionFailed, DriverError
from tailrace.event.reply import Reply
from tailrace.event.survey import survey_array
from tailrace.model import ResumeToken
from tailrace.stream.driver_port import AtWork, Cursor, CursorRequest, Session
from tests.scripted.wire import array
from tests.unit.engine.changes import EPOCH, Document, time, token

AFTER = "2C"
"""Suffix of the tokens of empty replies, which sort after the event of the same time."""
BEFORE = "29"
"""Suffix of the tokens of a time, which sort before its event."""


class ScriptedDriver:
    """Serves ``oplog`` in replies of ``batch_size``; a test may append to it at any time.

    ``faults[n]`` are errors of a ``getMore`` of cursors that have returned ``n`` events of the
    oplog; ``refusals`` are errors of the next aggregates, ``refused_starts`` those of all that
    start there. The events in ``unsent`` cannot be sent with images: the whole reply fails. The
    scope's pipeline leaves out those in ``filtered``. Aggregates wait for the event ``hanging``,
    reads for ``searching``. ``await_seconds`` is how long a ``getMore`` waits for a
    change.
    """

    def __init__(self, *oplog: Document, batch_size: int = 3) -> None:
        self.oplog = list(oplog)
        self.batch_size = batch_size
        self.await_seconds = 0.0
        self.faults: dict[int, list[DriverError]] = defaultdict(list)
        self.refusals: list[DriverError] = []
        self.refused_starts: dict[str, DriverError] = {}
        self.unsent: set[int] = set()
        self.filtered: set[int] = set()
        self.probes = 0
        self.hanging: anyio.Event | None = None
        self.searching: anyio.Event | None = None
        self.starts: list[Mapping[str, Any]] = []
        self.cursors: list[ScriptedCursor] = []
        self.sessions = 0
        self.reads = 0
        self.cancelled_reads = 0

    async def start_session(self) -> Session:
        self.sessions += 1
        return ScriptedSession(self)

    @property
    def now(self) -> int:
        """The number of the newest event, which is also the server's time."""
        return _number(self.oplog[-1]) if self.oplog else 0

    @property
    def start_options(self) -> list[str]:
        """The start option of each aggregate, as words with the times of tokens."""
        return [_words(stage) for stage in self.starts]


class ScriptedSession:
    def __init__(self, driver: ScriptedDriver) -> None:
        self._driver = driver
        self._closed = False

    async def open(self, request: CursorRequest, at_work: AtWork) -> Cursor:
        driver = self._driver
        stage = request.aggregate["pipeline"][0]["$changeStream"]
        probe = str(request.aggregate.get("comment", "")).startswith("tailrace")
        if probe:
            driver.probes += 1
        else:
            driver.starts.append(stage)
        await anyio.lowlevel.checkpoint()
        if driver.hanging is not None:
            await driver.hanging.wait()
        if driver.refusals:
            raise driver.refusals.pop(0)
        if _words(stage) in driver.refused_starts:
            raise driver.refused_starts[_words(stage)]
        cursor = ScriptedCursor(driver, _position(driver.oplog, stage), _start(driver, stage))
        cursor.probe = probe
        cursor.most = request.get_more.get("batchSize") or driver.batch_size
        cursor.bounds = _bounds(request.aggregate["pipeline"])
        plain = _PLAIN in request.aggregate["pipeline"]
        cursor.unsent, cursor.filtered = (
            (set(), set()) if plain else (driver.unsent, driver.filtered)
        )
        cursor.at_work = at_work
        driver.cursors.append(cursor)
        return cursor

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._driver.sessions -= 1


class ScriptedCursor:
    member = "db1:27017"
    at_work: AtWork
    most: int
    bounds: tuple[str, str]
    unsent: set[int]
    filtered: set[int]
    probe: bool
    """Whether it only tries something: then no reply of it can be lost."""

    def __init__(self, driver: ScriptedDriver, position: int, start: ResumeToken) -> None:
        self._driver = driver
        self._position = position
        self.killed = False
        self._closed = False
        self.first = self._answer([], start)

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        self._driver.reads += 1
        self.most = self.most if most is None else min(self._driver.batch_size, most)
        try:
            if self._driver.searching is not None:
                await self._driver.searching.wait()
            # A getMore waits for maxTimeMS; here that is a few turns of the event loop.
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            if self._position >= len(self._driver.oplog):
                await anyio.sleep(self._driver.await_seconds)
        except BaseException:
            self._driver.cancelled_reads += not self.probe
            self.killed = True
            raise
        if self.killed or self._closed:
            raise CommandFailed("no such cursor", code=43, code_name="CursorNotFound")
        faults = self._driver.faults[self._position]
        if faults:
            raise faults.pop(0)
        return self._reply()

    @property
    def closed(self) -> bool:
        """Whether the service has closed it."""
        return self._closed

    def kill(self) -> None:
        self.killed = True

    def _reply(self) -> Reply:
        oplog = self._driver.oplog
        events: list[Document] = []
        after, through = self.bounds
        while self._position < len(oplog) and len(events) < self.most:
            event = oplog[self._position]
            self._position += 1
            if not after < event["_id"]["_data"] <= through or _number(event) in self.filtered:
                continue
            if _number(event) in self.unsent:
                raise refused(47, "no image")
            events.append(event)
            if events[-1]["operationType"] == "invalidate":
                self._closed = True
                break
        behind = ResumeToken.of(events[-1]["_id"]) if events else token(self._driver.now, AFTER)
        return self._answer(events, behind)

    def _answer(self, events: list[Document], behind: ResumeToken) -> Reply:
        buffer = array(bson.encode(event) for event in events)
        bounds, _ = survey_array(buffer, 0)
        return Reply(
            buffer,
            bounds,
            cursor_id=int(not self._closed),
            operation_time=time(self._driver.now),
            post_batch_token=behind,
        )


_PLAIN = {"$project": {"operationType": 1, "ns": 1, "documentKey": 1, "clusterTime": 1}}
"""Of the stream that looks for an event which cannot be sent: it asks for no images."""


def _bounds(pipeline: list[Mapping[str, Any]]) -> tuple[str, str]:
    """Between which tokens the events are that the pipeline lets through."""
    after, through = "", "~"
    for stage in pipeline[1:]:
        data = stage.get("$match", {}).get("_id._data", {})
        after, through = data.get("$gt", after), data.get("$lte", through)
    return after, through


def _start(driver: ScriptedDriver, stage: Mapping[str, Any]) -> ResumeToken:
    """The position in the reply to an aggregate without events: where the stream starts."""
    if "startAtOperationTime" in stage:
        return token(stage["startAtOperationTime"].time - EPOCH, BEFORE)
    for option in ("resumeAfter", "startAfter"):
        if option in stage:
            return ResumeToken.of(stage[option])
    return token(driver.now, AFTER)


def _position(oplog: list[Document], stage: Mapping[str, Any]) -> int:
    """The index of the first event of a stream that starts as the stage says."""
    if "startAtOperationTime" in stage:
        start = stage["startAtOperationTime"]
        return sum(1 for event in oplog if event["clusterTime"] < start)
    for option in ("resumeAfter", "startAfter"):
        if option in stage:
            data = stage[option]["_data"]
            before = [event for event in oplog if event["_id"]["_data"] <= data]
            resumed = before[-1] if before else None
            if (
                option == "resumeAfter"
                and resumed is not None
                and resumed["operationType"] == "invalidate"
                and resumed["_id"]["_data"] == data
            ):
                raise CommandFailed("invalidate token", code=260, code_name="InvalidResumeToken")
            return len(before)
    return len(oplog)


def _words(stage: Mapping[str, Any]) -> str:
    if "startAtOperationTime" in stage:
        return f"at {stage['startAtOperationTime'].time - EPOCH}"
    for option, words in (("resumeAfter", "resume after"), ("startAfter", "start after")):
        if option in stage:
            found = ResumeToken.of(stage[option])
            at = found.cluster_time
            return f"{words} {at.time - EPOCH if at is not None else found.digest}"
    return "now"


def _number(event: Document) -> int:
    return int(event["clusterTime"].time) - EPOCH


def refused(code: int, message: str = "refused") -> CommandFailed:
    """A server error after which no stream resumes."""
    return CommandFailed(message, code=code, code_name="Scripted", wire_version=21)


def resumable() -> CommandFailed:
    """A server error after which a stream resumes by itself."""
    return CommandFailed(
        "not primary",
        code=10107,
        code_name="NotWritablePrimary",
        labels=frozenset({"ResumableChangeStreamError"}),
        wire_version=21,
    )


def disconnected() -> ConnectionFailed:
    return ConnectionFailed("connection closed")
