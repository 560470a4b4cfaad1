"""A call that does not end is shown, until it ends: by a look from outside."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tailrace.engine import Commit, Routed, RunIdentity, Supervisor, WatcherState
from tailrace.engine.handle.long_calls import LongCalls
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import FailurePolicy
from tests.handlers import handler
from tests.unit.engine.changes import changes, ddl, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching


class Held:
    """Every method of a handler; the one named ``where`` returns when it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.begun, self.end = anyio.Event(), anyio.Event()

    async def _at(self, where: str) -> None:
        if where == self.where:
            self.begun.set()
            await self.end.wait()

    async def on_event(self, event: ChangeEvent) -> None:
        await self._at("event")

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        await self._at("events")

    async def on_ddl(self, event: ChangeEvent, identity: RunIdentity) -> None:
        await self._at("ddl")

    async def begin(self, identity: RunIdentity) -> None:
        await self._at("position")

    async def ready(self, identity: RunIdentity) -> None:
        await self._at("opening")

    async def commit(self, identity: RunIdentity) -> None:
        await self._at("commit")

    def routed(self, **fields: Any) -> Routed:
        calls: dict[str, Any] = {"on_events": self.on_events, "on_ddl": self.on_ddl}
        if self.where == "event":
            calls = {"on_event": self.on_event}
        if self.where == "position":
            calls["position"] = self.begin
        if self.where == "commit":
            calls["commit"] = Commit(self.commit, 2, 10**6, 0.0)
        made = handler("table", **calls, **fields)
        return Routed(replace(made, ready=self.ready) if self.where == "opening" else made)


@pytest.mark.parametrize(
    ("where", "about"),
    [
        ("event", '{"_id": 1}'),
        ("events", '{"_id": 1}'),
        ("ddl", ""),
        ("commit", "a commit"),
        ("position", "its own position"),
        ("opening", "its opening"),
    ],
)
async def test_a_call_that_does_not_end_makes_the_scope_wait_for_it(where: str, about: str) -> None:
    held = Held(where)
    driver = ScriptedDriver(*([ddl(1)] if where == "ddl" else changes(1, 3)))
    async with Watching(driver, held.routed()).run() as watching:
        status, supervisor = watching.watcher.status, Supervisor(300)
        supervisor.watchers = [watching.watcher]
        calls = LongCalls(lambda: {"orders": status.recorders}, seconds=0)
        await held.begun.wait()
        await until(lambda: where == "position" or status.watermark is not None)
        calls.look()
        calls.look()
        assert status.state is WatcherState.WAITING
        assert status.recorders["table"].call == about
        on = f" on {about}" if about else ""
        assert f"waits for a call of handler 'table'{on} since " in status.reason
        assert [f"scope orders: {status.reason}"] == supervisor.degraded()
        held.end.set()

        def ended() -> bool:
            calls.look()
            return status.recorders["table"].call_since is None

        await until(ended)
        await watching.until_state(WatcherState.CAUGHT_UP)
        assert (supervisor.degraded(), status.reason) == ([], "")
    events = [log["event"] for log in watching.logs]
    assert events.count("handler.call_delayed") == (where not in ("position", "opening"))
    assert events.count("handler.call_ended") == 1


async def test_a_call_within_its_time_limit_is_not_shown() -> None:
    held = Held("event")
    routed = held.routed(failure=FailurePolicy(timeout_seconds=3600))
    async with Watching(ScriptedDriver(*changes(1, 2)), routed).run() as watching:
        await held.begun.wait()
        LongCalls(lambda: {"orders": watching.watcher.status.recorders}, seconds=0).look()
        assert watching.watcher.status.recorders["table"].call_since is None
        held.end.set()
