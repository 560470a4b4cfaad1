"""A position that the server has no history for: halted by default, skipped where allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.scripted import Command, ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]


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


def gaps(run: Daemon) -> list[dict[str, Any]]:
    shown = run.command("checkpoints", "show", "orders", "--json")
    found: list[dict[str, Any]] = json.loads(shown)["gaps"]
    return found


@pytest.mark.parametrize("where", ["aggregate", "getMore"])
def test_halt_says_what_can_be_done_and_keeps_the_position(
    scripted: ScriptedSet, daemon: Make, where: str
) -> None:
    run = followed_once(scripted, daemon)
    scripted.behave(history_lost_on=where)
    run.start(ready=False)
    assert run.wait() == 1
    (halted,) = run.logged("scope.halted")
    assert "tailrace checkpoints set orders --at" in halted["error"]
    assert "on_history_lost: skip" in halted["error"]
    assert len(scripted.commands("aggregate")) == 1
    assert gaps(run) == []


@pytest.mark.parametrize("where", ["aggregate", "getMore"])
def test_skip_walks_the_ladder_once_and_records_the_gap(
    scripted: ScriptedSet, daemon: Make, where: str
) -> None:
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
    (gap,) = gaps(run)
    assert gap["policy"] == "skip"
    assert "286" in gap["reason"]
    assert gap["since"] < gap["until"]
    assert run.logged("history.skipped")


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
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = daemon(scripted.uri, scopes=scope()).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    until(lambda: len(scripted.commands("getMore")) > 3, "some reads")
    scripted.fail("getMore", code=280)
    until(lambda: run.status()["restarts"] == 1, "the restart")
    scripted.insert("shop.orders", {"_id": 1})
    run.until_events(2)
    assert run.stop() == 0
    assert run.ids() == [0, 1]
