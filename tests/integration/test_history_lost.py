"""A position that the server has no history for: halted by default, skipped where allowed.

The oplog is a real one of 1 MB, cut as mongod cuts it. What no mongod of one version shows stands
at the end, on the scripted server: which command tells, and what is asked for, in which order.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.scripted import Command, ScriptedSet


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A server that forgets soon: what is older than its last checkpoint may go each second."""
    flags = {"--oplogSize": "1", "--syncdelay": "1"}
    server = ReplicaSet(tmp_path_factory.mktemp("small"), flags=flags)
    yield server
    server.stop()


@dataclass(frozen=True)
class Shop:
    """A daemon on ``orders`` of a database that only its test has."""

    server: ReplicaSet
    database: str
    run: Daemon

    def insert(self, *numbers: int) -> None:
        with self.server.client() as client:
            client[self.database].orders.insert_many([{"_id": number} for number in numbers])

    def gaps(self) -> list[dict[str, Any]]:
        return gaps(self.run)


@pytest.fixture
def shop(small: ReplicaSet, daemon: Make, request: pytest.FixtureRequest) -> Callable[..., Shop]:
    def make(**more: Any) -> Shop:
        """It has handled one event."""
        name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
        scopes = [{**scope(**more)[0], "database": name}]
        made = Shop(small, name, daemon(small.uri, scopes=scopes).start())
        made.insert(0)
        made.run.until_events(1)
        return made

    return make


def scope(**more: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "orders",
            "database": "shop",
            "collection": "orders",
            "max_await_time_ms": 200,
            **more,
        }
    ]


def gaps(run: Daemon) -> list[dict[str, Any]]:
    shown = run.command("checkpoints", "show", "orders", "--json")
    found: list[dict[str, Any]] = json.loads(shown)["gaps"]
    return found


def test_halt_says_what_can_be_done_and_each_of_that_helps(shop: Callable[..., Shop]) -> None:
    here = shop()
    assert here.run.stop() == 0
    here.insert(1)
    here.server.forget_history()
    for _ in range(2):  # and it halts again as long as nothing is done
        here.run.start(ready=False)
        assert here.run.wait() == 1
    halted = here.run.logged("scope.halted")
    assert len(halted) == 2
    assert "286" in halted[0]["error"]
    assert "tailrace checkpoints set orders --at" in halted[0]["error"]
    assert "tailrace checkpoints reset orders" in halted[0]["error"]
    assert "on_history_lost: skip" in halted[0]["error"]
    assert here.run.ids() == [0]
    assert here.gaps() == []
    here.run.command("checkpoints", "reset", "orders")
    here.run.start()
    here.insert(2)
    here.run.until_events(2)
    assert here.run.stop() == 0
    assert here.run.ids() == [0, 2]


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_skip_goes_on_at_the_end_and_records_the_gap(
    shop: Callable[..., Shop], driver: str
) -> None:
    here = shop(on_history_lost="skip")
    here.run.configuration["mongodb"]["driver"] = driver
    assert here.run.stop() == 0
    here.insert(1)
    here.server.forget_history()
    here.run.start()
    until(lambda: here.run.logged("history.skipped"), "the gap")
    here.insert(2)
    until(lambda: here.run.ids() == [0, 2], "the event behind the gap")
    lost = here.run.metric("tailrace_history_lost_total", scope="orders")
    assert lost is not None
    assert lost >= 1
    assert here.run.status()["last_error"]
    assert here.run.stop() == 0
    (gap,) = here.gaps()
    assert gap["policy"] == "skip"
    assert "286" in gap["reason"]
    assert gap["since"] < gap["until"]
    # The gap is behind it: nothing of it remains at the next start.
    here.insert(3)
    here.run.start()
    here.run.until_events(3)
    assert here.run.stop() == 0
    assert here.run.ids() == [0, 2, 3]
    assert here.gaps() == [gap]


@pytest.mark.parametrize("policy", ["halt", "skip"])
def test_a_stream_that_the_oplog_overtakes(shop: Callable[..., Shop], policy: str) -> None:
    """The process is stopped for longer than the server remembers, and then goes on."""
    here = shop(on_history_lost=policy)
    until(lambda: here.run.status()["checkpoint"], "a checkpoint")
    here.run.signal(signal.SIGSTOP)
    here.insert(1)
    here.server.forget_history()
    here.run.signal(signal.SIGCONT)
    if policy == "halt":
        assert here.run.wait() == 1
        assert "286" in here.run.logged("scope.halted")[0]["error"]
        assert here.gaps() == []
        return
    until(lambda: here.run.logged("history.skipped"), "the gap")
    here.insert(2)
    until(lambda: 2 in here.run.ids(), "the event behind the gap")
    assert here.run.stop() == 0
    assert len(here.gaps()) == 1


def test_an_idle_scope_outlives_any_oplog(shop: Callable[..., Shop]) -> None:
    """Its position moves with the others' writes, so there is nothing to lose."""
    here = shop()
    first = here.run.status()["checkpoint"]["token"]
    for _ in range(2):
        here.server.forget_history()
        until(lambda: here.run.status()["lag_seconds"]["committed"] == 0, "the idle position")
    assert here.run.status()["checkpoint"]["token"] != first
    assert here.run.stop() == 0
    here.insert(1)
    here.run.start()
    here.run.until_events(2)
    assert here.run.stop() == 0
    assert here.run.ids() == [0, 1]


# --- on the scripted server ------------------------------------------------------------------


def followed_once(server: ScriptedSet, daemon: Make, **more: Any) -> Daemon:
    """A daemon that has handled one event and stopped, behind which the oplog was cut."""
    run = daemon(server.uri, scopes=scope(**more)).start()
    server.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    assert run.stop() == 0
    server.noop()
    server.insert("shop.orders", {"_id": 1})
    server.noop()
    server.truncate_oplog()
    server.clear()
    return run


def starts(server: ScriptedSet) -> list[dict[str, Any]]:
    options = {"resumeAfter", "startAfter", "startAtOperationTime"}
    stages = [command.change_stream or {} for command in server.commands("aggregate")]
    return [{name: stage[name] for name in options & set(stage)} for stage in stages]


@pytest.mark.parametrize("where", ["aggregate", "getMore"])
def test_halt_asks_once_whichever_command_tells(
    scripted: ScriptedSet, daemon: Make, where: str
) -> None:
    run = followed_once(scripted, daemon)
    scripted.behave(history_lost_on=where)
    run.start(ready=False)
    assert run.wait() == 1
    assert "286" in run.logged("scope.halted")[0]["error"]
    assert len(scripted.commands("aggregate")) == 1


@pytest.mark.parametrize("where", ["aggregate", "getMore"])
def test_skip_walks_the_ladder_once(scripted: ScriptedSet, daemon: Make, where: str) -> None:
    run = followed_once(scripted, daemon, on_history_lost="skip")
    scripted.behave(history_lost_on=where)
    run.start()
    # Ready comes at the first start point that the server takes, which may not be the last one.
    until(lambda: run.logged("history.skipped"), "the gap")
    scripted.insert("shop.orders", {"_id": 2})
    until(lambda: run.ids() == [0, 2], "the event behind the gap")
    assert run.metric("tailrace_history_lost_total", scope="orders") == len(starts(scripted)) - 1
    assert run.stop() == 0
    tried = starts(scripted)
    assert tried[-1] == {}
    assert len({repr(start) for start in tried}) == len(tried), "a dead start point came twice"
    assert len(gaps(run)) == 1


def test_a_token_that_is_refused_gives_way_to_the_time_without_a_gap(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = daemon(scripted.uri, scopes=scope(on_history_lost="skip")).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    assert run.stop() == 0
    scripted.insert("shop.orders", {"_id": 1})
    scripted.clear()

    def refuse(command: Command) -> dict[str, Any] | None:
        if "resumeAfter" in (command.change_stream or {}):
            return {"ok": 0, "code": 280, "codeName": "ChangeStreamFatalError", "errmsg": "no"}
        return None

    scripted.on_command(refuse)
    run.start()
    until(lambda: 1 in run.ids(), "the next event")
    assert run.stop() == 0
    assert "startAtOperationTime" in starts(scripted)[-1]
    assert gaps(run) == []


def test_history_that_is_lost_again_and_again_halts(scripted: ScriptedSet, daemon: Make) -> None:
    run = followed_once(scripted, daemon, on_history_lost="skip")
    scripted.fail("getMore", times=None, code=286)
    run.start(ready=False)
    assert run.wait() == 1
    assert len(scripted.commands("aggregate")) < 10


def test_a_lost_history_in_mid_stream_is_first_asked_again_from_the_checkpoint(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = daemon(mongod.uri, scopes=[{**scope()[0], "database": database}]).start()
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 0})
        run.until_events(1)
        until(lambda: run.status()["state"] == "caught_up", "some reads")
        mongod.fail("getMore", appName="tailrace", errorCode=280)
        until(lambda: run.status()["restarts"] == 1, "the restart")
        client[database].orders.insert_one({"_id": 1})
    run.until_events(2)
    assert run.stop() == 0
    assert run.ids() == [0, 1]
