"""SIGKILL at every point around an invalidate: what was handled is known, and it goes on behind."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.load import NAMESPACE, until_resumed
from tests.scripted import Command, ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]
WHOLE = ["insert", "drop", "invalidate", "insert"]


def kinds(run: Daemon) -> list[str]:
    return [event["operationType"] for event in run.events()]


def stored(run: Daemon) -> dict[str, Any]:
    """The checkpoint as it lies on the disk."""
    with sqlite3.connect(run.directory / "checkpoints.db") as connection:
        rows = connection.execute("SELECT document FROM checkpoints").fetchall()
    connection.close()
    document: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
    return document


def starts(server: ScriptedSet) -> list[set[str]]:
    options = {"resumeAfter", "startAfter", "startAtOperationTime"}
    return [options & set(c.change_stream or {}) for c in server.commands("aggregate")]


def reading(server: ScriptedSet, daemon: Make, **sections: Any) -> Daemon:
    """A daemon that has handled one event, and remembers that."""
    run = daemon(server.uri, **sections).start()
    server.insert(NAMESPACE, {"_id": 0})
    run.until_events(1)
    until(lambda: stored(run).get("event_token"), "its checkpoint")
    server.clear()
    return run


def kill(run: Daemon) -> None:
    run.signal(signal.SIGKILL)
    run.wait()


def assert_goes_on(run: Daemon, server: ScriptedSet) -> None:
    """Started again, it comes to the next event without a back-off, and stops well."""
    run.start()
    server.insert(NAMESPACE, {"_id": 1})
    until(lambda: run.ids()[-1:] == [1], "the event behind the invalidate")
    assert run.stop() == 0
    assert "watcher.restarting" not in run.log


def test_before_it_was_delivered(scripted: ScriptedSet, daemon: Make) -> None:
    run = reading(scripted, daemon)
    kill(run)
    scripted.drop(NAMESPACE)
    assert_goes_on(run, scripted)
    assert kinds(run) == WHOLE
    assert starts(scripted) == [{"resumeAfter"}, {"startAfter"}]


def test_while_it_was_being_handled(scripted: ScriptedSet, daemon: Make) -> None:
    """Delivered and not checkpointed: it comes again, in the same order, with the same token."""
    handlers = {
        "file": {"type": "jsonl", "path": "events.jsonl", "json": "canonical"},
        "mine": {"type": "python", "target": "deadly:handle"},
    }
    routes = [{"scope": "orders", "handlers": ["file", "mine"]}]
    run = daemon(scripted.uri, handlers=handlers, routes=routes)
    (run.directory / "deadly.py").write_text(
        "import os, pathlib\nimport anyio\n"
        "async def handle(event):\n"
        "    if event.operation_type != 'invalidate' or os.path.exists('once'):\n"
        "        return\n"
        "    while b'invalidate' not in pathlib.Path('events.jsonl').read_bytes():\n"
        "        await anyio.sleep(0.01)\n"
        "    open('once', 'w').close()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    run.start()
    scripted.insert(NAMESPACE, {"_id": 0})
    run.until_events(1)
    scripted.drop(NAMESPACE)
    assert run.wait() == -signal.SIGKILL
    assert stored(run).get("kind") != "invalidate"
    assert_goes_on(run, scripted)
    first_seen = list(dict.fromkeys(event["_id"]["_data"] for event in run.events()))
    by_token = {event["_id"]["_data"]: event["operationType"] for event in run.events()}
    assert [by_token[token] for token in first_seen] == WHOLE
    assert kinds(run).count("invalidate") == 2


def test_after_its_checkpoint_and_before_the_reopening(scripted: ScriptedSet, daemon: Make) -> None:
    run = reading(scripted, daemon)
    silent = scripted.fail("aggregate", silent=True, where=starts_after)
    scripted.drop(NAMESPACE)
    until(lambda: silent.hits, "the reopening")
    checkpoint = stored(run)
    assert checkpoint["kind"] == "invalidate"
    kill(run)
    scripted.clear()
    assert_goes_on(run, scripted)
    assert kinds(run) == WHOLE
    assert starts(scripted) == [{"startAfter"}]


def test_after_the_reopening_and_before_the_next_event(scripted: ScriptedSet, daemon: Make) -> None:
    """Idle positions move on, and remain such that only startAfter accepts them."""
    run = reading(scripted, daemon)
    scripted.drop(NAMESPACE)
    until(lambda: run.events()[-1]["operationType"] == "invalidate", "the invalidate")
    until(lambda: scripted.commands("aggregate"), "the reopening")
    before = stored(run)
    scripted.noop()
    until(lambda: stored(run)["sequence"] > before["sequence"], "an idle position")
    assert stored(run)["kind"] == "invalidate"
    kill(run)
    scripted.clear()
    assert_goes_on(run, scripted)
    assert kinds(run) == WHOLE
    assert starts(scripted) == [{"startAfter"}]


def test_a_fault_right_behind_the_reopening_starts_after_it_again(
    scripted: ScriptedSet, daemon: Make
) -> None:
    """Not a crash but a resume: no event has come yet, so the specification keeps startAfter."""
    run = reading(scripted, daemon)
    scripted.drop(NAMESPACE)
    until(lambda: scripted.commands("aggregate"), "the reopening")
    until(lambda: run.status()["state"] == "caught_up", "the next reads")
    scripted.kill_cursors()
    until_resumed(run, 1)
    scripted.insert(NAMESPACE, {"_id": 1})
    run.until_events(4)
    assert run.stop() == 0
    assert kinds(run) == WHOLE
    assert starts(scripted) == [{"startAfter"}, {"startAfter"}]


def starts_after(command: Command) -> bool:
    return "startAfter" in (command.change_stream or {})
