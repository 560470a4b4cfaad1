"""Two requests, one right after the other: what is accepted has its effect, or is refused."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import bson
import pytest

from tailrace.control.action import Action
from tailrace.control.actions.pause import PAUSE, RESUME
from tailrace.control.actions.reload import RELOAD, ReloadBody
from tailrace.control.actions.replay import REPLAY, ReplayBody
from tailrace.control.actions.restart import RESTART
from tailrace.control.actions.seek import SEEK, SeekBody
from tailrace.control.actions.skip import SKIP, SkipBody
from tailrace.control.actions.snapshot import SNAPSHOT, SnapshotBody
from tailrace.control.actions.verify import VERIFY, VerifyBody
from tailrace.control.bodies import ApplyBody, Body
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.server_positions import moment
from tailrace.destination import DocumentId, HeldKey, HeldKeys, HeldRows, Namespace, Row
from tailrace.engine import RunIdentity, Watcher, WatcherState, handler_runs, shared_stream
from tailrace.engine.watches import watch_desired_states
from tailrace.event import ChangeEvent
from tailrace.event.reply import Reply, read_reply
from tailrace.model.verification import VerificationState
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import Find
from tailrace.snapshot.snapshots import Snapshots
from tailrace.verify import run, verifications
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.changes import change, changes, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import SCOPE, Destination, Watching, running

REQUESTS: Mapping[str, tuple[Action, Body]] = {
    "restart": (RESTART, ApplyBody(wait=0)),
    "pause": (PAUSE, ApplyBody(wait=0)),
    "resume": (RESUME, ApplyBody(wait=0)),
    "seek": (SEEK, SeekBody(at=moment(time(5)), wait=0)),
    "skip": (SKIP, SkipBody(wait=0)),
    "replay": (
        REPLAY,
        ReplayBody(**{"from": moment(time(3))}, to=moment(time(6)), handler="audit"),
    ),
    "replay --cancel": (REPLAY, ReplayBody(cancel=True)),
    "snapshot": (SNAPSHOT, SnapshotBody()),
    "snapshot cancel": (SNAPSHOT, SnapshotBody(action="cancel")),
    "reload": (RELOAD, ReloadBody()),
    "pause audit": (PAUSE, ApplyBody(wait=0, handler="audit")),
    "seek audit": (SEEK, SeekBody(at=moment(time(4)), wait=0, handler="audit")),
    "snapshot audit": (SNAPSHOT, SnapshotBody(handler="audit")),
    "snapshot other": (SNAPSHOT, SnapshotBody(handler="other")),
    "verify": (VERIFY, VerifyBody(handler="audit")),
    "verify --pause": (VERIFY, VerifyBody(action="pause")),
    "verify --cancel": (VERIFY, VerifyBody(action="cancel")),
}


@dataclass
class OneDocument:
    """A server with one collection that has one document."""

    driver: Any = None

    async def start_session(self) -> Any:
        return await self.driver.start_session()

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        collection = {"name": "orders", "info": {"uuid": bson.Binary(b"u" * 16)}}
        found = collection if "listCollections" in command else {"n": 1}
        cursor = {"firstBatch": [found], "id": 0, "ns": "shop.$cmd"}
        return {"ok": 1, "operationTime": time(9), "cursor": cursor}

    async def first_batch(self, database: str, command: Mapping[str, Any]) -> Reply:
        raise AssertionError("one document is not cut into ranges")

    async def find(self, find: Find) -> Sequence[Reply]:
        found = [] if "$gt" in str(find.command["filter"]) else [{"_id": 1}]
        cursor = {"firstBatch": found, "id": 0, "ns": "shop.orders"}
        return [read_reply(bson.encode({"cursor": cursor, "operationTime": time(9)}))]


class OneRow:
    """The rows of a destination that has just that document."""

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        return [{"key": str(each.document_key)} for each in documents]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        return HeldRows([{"key": str(bson.decode(each.raw))} for each in keys])

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        return HeldKeys([HeldKey("1", DocumentId(bson.encode({"_id": 1})))])


@asynccontextmanager
async def one_row(identity: RunIdentity) -> AsyncIterator[OneRow]:
    yield OneRow()


class Counting(Destination):
    """It counts the ends of snapshots apart from changes."""

    snapshots = 0

    async def on_event(self, event: ChangeEvent) -> None:
        if event.operation_type == "snapshotEnd":
            self.snapshots += 1
        elif event.operation_type not in ("read", "snapshotBegin"):
            await super().on_event(event)


def rows() -> Snapshots:
    return Snapshots(SCOPE, OneDocument(), SnapshotOptions())


@dataclass
class Case:
    """A scope of two handlers, and what became of the requests for it."""

    audit: Counting = field(default_factory=lambda: Counting("audit"))
    other: Counting = field(default_factory=lambda: Counting("other"))
    accepted: Counter[str] = field(default_factory=Counter)
    logs: Sequence[Any] = ()

    def __post_init__(self) -> None:
        both = [replace(each.routed(concurrency=1), rows=rows) for each in (self.audit, self.other)]
        both[0] = replace(both[0], handler=replace(both[0].handler, comparison=one_row))
        driver = ScriptedDriver(*changes(1, 10))
        self.one = Watching(driver, *both, checkpoint_seconds=0, rows=rows())
        self.one.runtime.clock.answered(time(9))
        self.control = control_of(self.one, reload=self._reload)
        self.control.verifications.server = lambda: OneDocument(driver)

    async def _reload(self, *, dry_run: bool) -> Done:
        done = anyio.Event()

        async def begin() -> Watcher:
            await self.control.supervisor.end_side_calls(SCOPE.name, 10)
            await anyio.lowlevel.checkpoint()
            done.set()
            return Watcher(replace(self.one.watcher.plan, rows=rows()), self.one.runtime)

        self.control.supervisor.change(SCOPE.name, begin, 10)
        await done.wait()
        return Done("reloaded")

    @property
    def watcher(self) -> Watcher:
        return self.control.watcher(SCOPE.name)

    @property
    def states(self) -> set[WatcherState]:
        return {self.watcher.status_of(name).state for name in ("audit", "other")}

    @asynccontextmanager
    async def followed(self, state: WatcherState) -> AsyncIterator[None]:
        states, supervisor = self.one.runtime.desired_states, self.control.supervisor
        async with running(supervisor) as logs, anyio.create_task_group() as beside:
            beside.start_soon(watch_desired_states, states, supervisor.apply, 0.01)
            beside.start_soon(self.control.verifications.run)
            await until(lambda: len(self.audit.handled) == len(self.other.handled) == 9)
            await until(lambda: self.states == {WatcherState.CAUGHT_UP})
            if state is WatcherState.HALTED:
                self.one.driver.unsent.add(10)
                self.one.driver.oplog.append(change(10))
                await until(lambda: self.states == {WatcherState.HALTED})
            self.logs = logs
            yield
            beside.cancel_scope.cancel()

    async def ask(self, name: str) -> None:
        try:
            await ask(self.control, REQUESTS[name][0], SCOPE.name, REQUESTS[name][1])
        except ActionRefused:
            return
        self.accepted[name] += 1

    async def until_quiet(self) -> None:
        """Lets what is paused or halted go on, once it is, until there is nothing to do."""
        self.one.driver.unsent.clear()
        compared = self.control.verifications
        while not self._is_quiet or any(
            not each.is_over for each in await compared.store.load(SCOPE.name)
        ):
            wanted = await self.one.runtime.desired_states.load(SCOPE.name)
            states = self.states
            if WatcherState.HALTED in states:
                self.control.supervisor.restart(SCOPE.name)
            elif wanted is not None and wanted.of("audit").paused and WatcherState.PAUSED in states:
                await ask(self.control, RESUME, SCOPE.name, ApplyBody(wait=0))
            going_on = compared.running(SCOPE.name, "audit")
            if going_on is not None and going_on.record.state is VerificationState.PAUSED:
                await compared.change(going_on, VerificationState.RUNNING)
            await anyio.lowlevel.checkpoint()

    @property
    def _is_quiet(self) -> bool:
        """Whether both handlers are together, and nothing that was accepted is left to do."""
        watcher = self.watcher
        together = self.states == {WatcherState.CAUGHT_UP} and not watcher.apart
        seen = [watcher.status.snapshot_of(name) for name in ("audit", "other")]
        reads = watcher.rows_of(None).active or any(
            each and not each.progress.over for each in seen
        )
        if not together or reads or watcher.replays.running:
            return False
        generations = watcher.generations
        return generations["generation"] == generations["observed_generation"]

    def logged(self, event: str) -> list[Any]:
        return [each for each in self.logs if each["event"] == event]

    @property
    def without_effect(self) -> list[str]:
        """What was accepted, and has had no effect in the end."""
        replays = sum(each["state"] == "done" for each in self.logged("replay.ended"))
        sought = {each["handler"] for each in self.logged("scope.sought")}
        snapshots, cancelled = self.accepted["snapshot"], self.accepted["snapshot cancel"]
        has = {
            "replay": self.accepted["replay --cancel"] or replays == self.accepted["replay"],
            "seek": sought == {"audit", "other"},
            "seek audit": "audit" in sought,
            "skip": sought == {"audit", "other"},
            "snapshot": cancelled or min(self.audit.snapshots, self.other.snapshots) >= snapshots,
            "snapshot audit": self.audit.snapshots == snapshots + self.accepted["snapshot audit"],
            "snapshot other": self.other.snapshots == snapshots + self.accepted["snapshot other"],
        }
        compared = sum(each["state"] == "done" for each in self.logged("verification.ended"))
        has["verify"] = self.accepted["verify --cancel"] or compared == self.accepted["verify"]
        return [name for name in self.accepted if not has.get(name, True)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_runs, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(verifications, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(run, "_OBSTACLE_SECONDS", 0.01)


@pytest.mark.parametrize("state", [WatcherState.CAUGHT_UP, WatcherState.HALTED])
@pytest.mark.parametrize("first", REQUESTS)
async def test_what_is_accepted_has_its_effect_whatever_is_asked_for_next(
    first: str, state: WatcherState
) -> None:
    """Of the same scope, or of one handler of it."""
    for second in REQUESTS:
        case = Case()
        async with case.followed(state):
            await case.ask(first)
            await case.ask(second)
            await case.until_quiet()
            assert case.without_effect == [], (first, second)
            assert {*range(1, 10)} <= set(case.audit.handled) & set(case.other.handled)
