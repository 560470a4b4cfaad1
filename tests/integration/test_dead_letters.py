"""What handlers cannot handle: tried again, set aside in order, replayed, discarded."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet

# Refuses the events named in the file "poison", and writes down the others.
PICKY = """
from pathlib import Path

async def handle(event):
    poison = Path("poison").read_text().split() if Path("poison").exists() else []
    if str(event.full_document["n"]) in poison:
        raise ValueError(f"poison {event.full_document['n']}")
    with open("handled", "a") as file:
        print(event.full_document["n"], file=file)
"""


REFUSE_LETTERS = """
CREATE TRIGGER refuse_letters BEFORE INSERT ON dead_letters
BEGIN SELECT RAISE(ABORT, 'no letters today'); END
"""


def picky(make: Make, uri: str, **delivery: Any) -> Daemon:
    run = make(
        uri,
        delivery={
            "retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.02},
            **delivery,
        },
        handlers={"mine": {"type": "python", "target": "picky:handle"}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
    )
    (run.directory / "picky.py").write_text(PICKY)
    return run


def handled(run: Daemon) -> list[int]:
    path: Path = run.directory / "handled"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def insert(server: ScriptedSet, n: int, key: Any = None) -> None:
    server.insert("shop.orders", {"_id": n if key is None else key, "n": n})


def test_a_poison_event_is_set_aside_and_the_rest_is_delivered(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = picky(daemon, scripted.uri)
    (run.directory / "poison").write_text("3")
    run.start()
    for n in range(10):
        insert(scripted, n)
    until(lambda: len(handled(run)) == 9, "the others")
    until(lambda: run.metric("tailrace_dead_letters_total", handler="mine") == 1, "the letter")
    assert run.metric("tailrace_handler_retries_total", handler="mine") == 1
    assert run.metric("tailrace_events_handled_total", outcome="dead_letter") == 1
    until(lambda: run.status()["in_flight"]["events"] == 0, "the end")
    assert run.stop() == 0
    assert handled(run) == [n for n in range(10) if n != 3]
    listed = run.command("dead-letters", "list")
    assert "mine" in listed
    assert "poison 3" in listed
    run.start()
    insert(scripted, 10)
    until(lambda: handled(run)[-1] == 10, "what comes after the restart")
    assert run.stop() == 0


def test_later_events_of_a_document_wait_behind_it_and_are_replayed_in_order(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = picky(daemon, scripted.uri)
    (run.directory / "poison").write_text("1")
    run.start()
    for n, key in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
        insert(scripted, n, key)
    until(lambda: run.metric("tailrace_dead_letters_total", handler="mine") == 2, "two letters")
    until(lambda: handled(run) == [2, 4], "the other document")
    assert run.stop() == 0
    run.start()
    insert(scripted, 5, "a")
    until(lambda: run.metric("tailrace_dead_letters_total", handler="mine") == 1, "one more")
    with pytest.raises(subprocess.CalledProcessError):
        run.command("dead-letters", "replay")
    assert handled(run) == [2, 4]
    (run.directory / "poison").unlink()
    assert "would be replayed" in run.command("dead-letters", "replay", "--dry-run")
    run.command("dead-letters", "replay")
    assert handled(run) == [2, 4, 1, 3, 5]
    insert(scripted, 6, "a")
    until(lambda: handled(run)[-1] == 6, "the document is free again")
    assert run.stop() == 0
    assert "No dead letters" in run.command("dead-letters", "list")


def test_discarded_letters_free_the_document(scripted: ScriptedSet, daemon: Make) -> None:
    run = picky(daemon, scripted.uri)
    (run.directory / "poison").write_text("1")
    run.start()
    insert(scripted, 1, "a")
    until(lambda: run.metric("tailrace_dead_letters_total", handler="mine") == 1, "the letter")
    run.command("dead-letters", "discard", "--handler", "mine")
    insert(scripted, 2, "a")
    until(lambda: handled(run) == [2], "the next event")
    assert run.stop() == 0


def test_on_failure_halt_stops_at_the_event(scripted: ScriptedSet, daemon: Make) -> None:
    run = picky(daemon, scripted.uri, on_failure="halt")
    (run.directory / "poison").write_text("1")
    run.start()
    for n in range(3):
        insert(scripted, n, "same")
    assert run.wait() == 1
    assert "on_failure: halt" in run.logged("scope.halted")[0]["error"]
    (run.directory / "poison").unlink()
    run.start()
    until(lambda: handled(run)[-1:] == [2], "the rest")
    assert run.stop() == 0
    assert list(dict.fromkeys(handled(run))) == [0, 1, 2]


def test_a_bad_deploy_halts_instead_of_emptying_the_stream(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = picky(daemon, scripted.uri, dead_letters={"max_consecutive": 5})
    (run.directory / "poison").write_text(" ".join(map(str, range(100))))
    run.start()
    for n in range(100):
        insert(scripted, n)
    assert run.wait() == 1
    assert "5 events in a row were set aside" in run.logged("scope.halted")[0]["error"]
    assert len(run.command("dead-letters", "export").splitlines()) <= 5


def test_letters_that_cannot_be_stored_are_not_lost(scripted: ScriptedSet, daemon: Make) -> None:
    run = picky(daemon, scripted.uri)
    (run.directory / "poison").write_text("1")
    run.start()
    with closing(sqlite3.connect(run.directory / "tailrace.db")) as store:
        store.execute(REFUSE_LETTERS)
        insert(scripted, 1)
        until(lambda: run.status()["restarts"] >= 1, "a restart")
        assert "no letters today" in run.logged("watcher.restarting")[0]["error"]
        store.execute("DROP TRIGGER refuse_letters")
    until(lambda: "poison 1" in run.command("dead-letters", "list"), "the letter")
    assert run.stop() == 0


@pytest.mark.parametrize("store", ["sqlite", "mongodb"])
def test_letters_that_wait_are_counted_in_the_store(
    mongod: ReplicaSet, database: str, daemon: Make, store: str
) -> None:
    """After a restart too, and down again when the command line resolves them."""
    run = picky(daemon, mongod.uri)
    if store == "mongodb":
        run.configuration["store"] = {"type": store, "database": f"{database}-store"}
    run.configuration["scopes"][0]["database"] = database
    (run.directory / "poison").write_text("1 2 3")
    run.start()

    def waiting() -> tuple[float | None, Any]:
        metric = run.metric("tailrace_dead_letters_waiting", scope="orders", handler="mine")
        return metric, run.status()["handlers"]["mine"]["waiting"]

    until(lambda: waiting() == (0, 0), "the first count")
    with mongod.client() as client:
        client[database].orders.insert_many([{"_id": n, "n": n} for n in range(4)])
        until(lambda: waiting() == (3, 3), "three letters")
        assert run.stop() == 0
        run.start()
        until(lambda: waiting() == (3, 3), "the same three after the restart")
        assert run.metric("tailrace_dead_letters_total", handler="mine") == 0
        (one, *_) = (
            line.split()[0]
            for line in run.command("dead-letters", "list").splitlines()
            if "poison" in line
        )
        run.command("dead-letters", "discard", one)
        until(lambda: waiting() == (2, 2), "one less")
        (run.directory / "poison").unlink()
        run.command("dead-letters", "replay")
        until(lambda: waiting() == (0, 0), "none")
        assert run.stop() == 0
        client.drop_database(f"{database}-store")
