"""Faults of replays: two at once, a process that dies at a step of one, and elections."""

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.engine.status.watcher_state import READING
from tests.actions import act
from tests.daemon import Daemon, Make, until, whole_lines
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.orders import Orders

SOURCE = """
import os
import signal
from pathlib import Path

import anyio

from tailrace.stores.mongodb_dead_letters import MongoDeadLetters
from tailrace.stores.mongodb_letter_parts import LetterParts

HERE = Path.cwd()

def at(step):  # kills the process, once, if the test wants it
    if (HERE / f"die-{step}").exists():
        (HERE / f"die-{step}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)

async def note(event):
    if not (HERE / "mended").exists():
        raise ValueError("poison")
    at("begun")
    with open("handed-over", "a") as file:
        print(os.getpid(), event.full_document["n"], file=file)
    while (HERE / "hold").exists():
        await anyio.sleep(0.02)
    at("handed over")

resolve, resolve_parts = MongoDeadLetters.resolve, LetterParts.resolve

async def resolved(*given):
    at("taken")
    found = await resolve(*given)
    at("resolved")
    return found

async def parts_resolved(*given):
    at("marked")
    await resolve_parts(*given)

MongoDeadLetters.resolve, LetterParts.resolve = resolved, parts_resolved
"""
REPLAY = "dead-letters", "replay"
DISCARD = "dead-letters", "discard", "--scope", "orders"


class Letters:
    """A daemon and the dead letters of one document. Its handler holds the first until ``go``."""

    def __init__(self, orders: Orders, run: Daemon, **fields: Any) -> None:
        self._orders, self.run = orders, run
        self._hold = run.directory / "hold"
        self._hold.touch()
        run.start()
        until(lambda: run.status()["state"] in READING, "the stream")
        for n in (1, 2, 3):
            self.write(n, **fields)
        self.until_waiting(3)
        (run.directory / "mended").touch()

    def write(self, n: int, **fields: Any) -> None:
        document = {"n": n, **fields}
        with self._orders.server.client() as client:
            client[self._orders.database].orders.replace_one({"_id": 0}, document, upsert=True)

    def until_waiting(self, count: int) -> None:
        until(lambda: len(self.run.letters()) == count, f"{count} letters")

    def go(self) -> None:
        self._hold.unlink()

    @property
    def handed_over(self) -> list[tuple[int, int]]:
        """Pairs of process id and number, in the order of the handler calls."""
        path = self.run.directory / "handed-over"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(process), int(n)) for process, n in map(str.split, lines)]

    @property
    def waiting(self) -> list[int]:
        """The numbers of the letters that wait, as the command lists them."""
        listed = json.loads(self.run.command("dead-letters", "list", "--json"))
        numbers = [each["event"]["fullDocument"]["n"] for each in listed]
        return [int(each["$numberInt"]) for each in numbers]

    def until_begun(self, process: int) -> None:
        until(lambda: self.handed_over == [(process, 1)], "the first letter")

    def replay(self, *command: str) -> tuple[int, int, str]:
        """Runs a replay, or that command: its process id, exit code, and errors."""
        with self.run.begun(*(command or REPLAY)) as process:
            errors = process.communicate(timeout=60)[1]
        return process.pid, process.returncode, errors


def configured(orders: Orders, **sections: Any) -> Daemon:
    """A daemon with its store in the source's server, which processes may share."""
    return orders.daemon(
        targets={"note": {"target": "mine:note"}},
        source=SOURCE,
        delivery={"retry": {"attempts": 1}},
        store={"type": "mongodb", "database": f"{orders.database}_store"},
        http={"port": free_port()},
        **sections,
    )


@pytest.fixture
def letters(orders: Orders) -> Letters:
    """In a store that processes share."""
    return Letters(orders, configured(orders, replicas={}))


def test_a_second_replay_is_refused_while_the_daemon_replays_and_adds_letters(
    letters: Letters,
) -> None:
    """Each letter is handed over once, in order, by the daemon, which goes on meanwhile."""
    assert letters.run.process is not None
    daemon = letters.run.process.pid
    with letters.run.begun(*REPLAY) as one:
        letters.until_begun(daemon)
        for command in (REPLAY, DISCARD):
            _, code, errors = letters.replay(*command)
            assert code == 1
            (line,) = errors.splitlines()
            assert "the dead letters of scope 'orders' are being replayed or discarded" in line
        letters.write(4)
        letters.until_waiting(4)
        letters.go()
        assert one.wait(60) == 0
    assert letters.handed_over == [(daemon, n) for n in (1, 2, 3, 4)]
    assert letters.run.command(*REPLAY) == "No dead letters.\n"
    done = [log for log in letters.run.logged("action.done") if log["action"] == "replay"]
    assert done[0]["by"].endswith(" at 127.0.0.1")
    assert letters.run.stop() == 0


@pytest.mark.parametrize("step", ["begun", "handed over", "taken", "marked", "resolved"])
def test_a_process_that_dies_at_a_step_of_a_replay_keeps_the_letters_that_it_has_not_done(
    orders: Orders, step: str
) -> None:
    """A letter is done when it is marked as replayed: it comes again if that was not reached."""
    large = {"text": "x" * 5_000_000} if step == "marked" else {}  # its event is in parts
    letters = Letters(orders, configured(orders), **large)
    letters.go()
    (letters.run.directory / f"die-{step}").touch()
    _, code, errors = letters.replay()
    assert letters.run.wait() == -signal.SIGKILL
    assert (code, errors.count("\n")) == (1, 1), errors
    assert "'tailrace dead-letters list' shows" in errors
    done = step in ("marked", "resolved")
    tried = [1] if step != "begun" else []
    assert [n for _, n in letters.handed_over] == tried
    assert letters.waiting == ([2, 3] if done else [1, 2, 3])
    letters.run.start()
    letters.write(4)
    letters.until_waiting(3 if done else 4)
    assert letters.replay()[1] == 0
    again = [] if done else [1]
    assert [n for _, n in letters.handed_over] == [*tried, *again, 2, 3, 4]
    assert letters.waiting == []
    assert letters.run.stop() == 0, letters.run.log


@pytest.fixture
def of_three(replica_set: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(replica_set, database, daemon)


def test_a_replay_of_dead_letters_goes_on_across_elections(
    of_three: Orders, replica_set: ReplicaSet
) -> None:
    letters = Letters(of_three, configured(of_three, replicas={}))
    assert letters.run.process is not None
    with letters.run.begun(*REPLAY) as one:
        letters.until_begun(letters.run.process.pid)
        replica_set.step_down()
        letters.go()
        assert one.wait(60) == 0, one.communicate()
    assert [n for _, n in letters.handed_over] == [1, 2, 3]
    letters.write(4)
    until(lambda: [n for _, n in letters.handed_over][3:] == [4], "the next change")
    assert letters.waiting == []
    assert letters.run.stop() == 0, letters.run.log


def test_a_replay_is_refused_while_there_is_no_primary_and_done_afterwards(
    of_three: Orders, replica_set: ReplicaSet
) -> None:
    run = configured(of_three)
    run.configuration["mongodb"]["uri"] += "&serverSelectionTimeoutMS=1000"
    letters = Letters(of_three, run)
    letters.go()
    with replica_set.without_primary():
        _, code, errors = letters.replay()
        assert (code, "dead_letters: ServerSelectionTimeoutError" in errors) == (1, True), errors
        assert errors.endswith("try again when it answers\n")
        since = datetime.now(UTC).isoformat()
        status, answer = act(run, "/scopes/orders/replay", **{"from": since, "handler": "note"})
        assert (status, "nothing was changed" in answer) == (503, True), answer
    assert letters.handed_over == []
    until(lambda: letters.replay()[1] == 0, "a replay")
    assert [n for _, n in letters.handed_over] == [1, 2, 3]
    assert run.stop() == 0, run.log


class Span:
    """A daemon whose handler has had twenty changes, and a replay of them that it holds."""

    def __init__(self, orders: Orders, run: Daemon) -> None:
        self.run, self.numbers = run, [*range(20)]
        (run.directory / "mended").touch()
        run.start()
        with orders.server.client() as client:
            second = client.admin.command("ping")["operationTime"].time
        orders.insert_each([{"_id": n, "n": n} for n in self.numbers])
        self._noted = run.directory / "handed-over"
        self._noted.touch()
        until(lambda: len(self.handed_over) == len(self.numbers), "all changes")
        assert sorted(self.handed_over) == self.numbers
        asks = {"from": datetime.fromtimestamp(second, UTC).isoformat(), "handler": "note"}
        self._hold = run.directory / "hold"
        self._hold.touch()
        status, answer = act(run, "/scopes/orders/replay", **asks)
        assert status == 202, answer
        until(lambda: len(self.handed_over) > len(self.numbers), "the first change")

    @property
    def handed_over(self) -> list[int]:
        return [int(line.split()[1]) for line in whole_lines(self._noted.read_text())]

    def go(self) -> None:
        self._hold.unlink()

    def ended(self) -> dict[str, Any]:
        """The replay, when it is over."""

        def replay() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(self.run.get("/scopes/orders/replay")[1])["replay"]
            return found

        until(lambda: replay()["state"] != "running", "the end of the replay")
        return replay()


def test_a_replay_of_a_span_goes_on_across_elections(
    of_three: Orders, replica_set: ReplicaSet
) -> None:
    span = Span(of_three, configured(of_three, scope={"batch_size": 2}, replicas={}))
    replica_set.step_down()
    span.go()
    found = span.ended()
    assert (found["state"], found["reason"]) == ("done", "")
    assert sorted(span.handed_over[20:]) == span.numbers
    assert span.run.stop() == 0, span.run.log


def test_a_replay_of_a_span_goes_on_after_the_process_was_killed(orders: Orders) -> None:
    """What was handed over and not saved comes once more, and nothing else does."""
    span = Span(orders, configured(orders, scope={"batch_size": 2}))
    span.run.kill()
    before = len(span.handed_over)
    span.go()
    span.run.start()
    found = span.ended()
    assert (found["state"], found["handler"]) == ("done", "note")
    assert sorted(span.handed_over[before:]) == span.numbers
    assert span.run.stop() == 0, span.run.log
