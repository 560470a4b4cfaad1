"""Replays of one scope's dead letters: two at the same time, and one after another has ended."""

import signal
import socket

import pytest

from tailrace.engine.status.watcher_state import READING
from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders

SOURCE = """
import os
from pathlib import Path

import anyio

HERE = Path.cwd()

async def note(event):
    if not (HERE / "mended").exists():
        raise ValueError("poison")
    with open("handed-over", "a") as file:
        print(os.getpid(), event.full_document["n"], file=file)
    while (HERE / "hold").exists():
        await anyio.sleep(0.02)
"""
REPLAY = "dead-letters", "replay"
DISCARD = "dead-letters", "discard", "--scope", "orders"


class Letters:
    """A daemon and the dead letters of one document. Its handler holds the first until ``go``."""

    def __init__(self, orders: Orders, run: Daemon) -> None:
        self._orders, self.run = orders, run
        self._hold = run.directory / "hold"
        self._hold.touch()
        run.start()
        until(lambda: run.status()["state"] in READING, "the stream")
        for n in (1, 2, 3):
            self.write(n)
        self.until_waiting(3)
        (run.directory / "mended").touch()

    def write(self, n: int) -> None:
        with self._orders.server.client() as client:
            client[self._orders.database].orders.replace_one({"_id": 0}, {"n": n}, upsert=True)

    def until_waiting(self, count: int) -> None:
        until(
            lambda: self.run.metric("tailrace_dead_letters_waiting", handler="note") == count,
            f"{count} letters",
        )

    def go(self) -> None:
        self._hold.unlink()

    @property
    def handed_over(self) -> list[tuple[int, int]]:
        """Pairs of process id and number, in the order of the handler calls."""
        path = self.run.directory / "handed-over"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(process), int(n)) for process, n in map(str.split, lines)]

    def until_begun(self, process: int) -> None:
        until(lambda: self.handed_over == [(process, 1)], "the first letter")

    def replay(self, *command: str) -> tuple[int, int, str]:
        """Runs a replay, or that command: its process id, exit code, and errors."""
        with self.run.begun(*(command or REPLAY)) as process:
            errors = process.communicate(timeout=60)[1]
        return process.pid, process.returncode, errors


@pytest.fixture
def letters(orders: Orders) -> Letters:
    """In a store that processes share."""
    return Letters(
        orders,
        orders.daemon(
            targets={"note": {"target": "mine:note"}},
            source=SOURCE,
            delivery={"retry": {"attempts": 1}},
            store={"type": "mongodb", "database": f"{orders.database}_store"},
            replicas={},
            http={"port": free_port()},
        ),
    )


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


def test_a_replay_without_a_daemon_holds_the_scope(letters: Letters) -> None:
    assert letters.run.stop() == 0
    with letters.run.begun(*REPLAY) as one:
        letters.until_begun(one.pid)
        who = f"process {one.pid} on {socket.gethostname()}"
        for command in (REPLAY, DISCARD):
            _, code, errors = letters.replay(*command)
            assert (code, f"its lease belongs to {who}, which replays" in errors) == (1, True)
        letters.run.start(ready=False).until_answers()
        until(lambda: letters.run.status().get("state") == "standby", "that the daemon waits")
        one.send_signal(signal.SIGTERM)
        assert (one.wait(60), *one.communicate()[1:]) == (143, "")
    letters.go()
    letters.run.until_ready()
    two, code, errors = letters.replay()
    assert code == 0, errors
    assert [n for _, n in letters.handed_over] == [1, 1, 2, 3]
    assert two not in [process for process, _ in letters.handed_over]


def test_a_killed_replay_keeps_its_lease_until_it_expires(letters: Letters) -> None:
    assert letters.run.stop() == 0
    with letters.run.begun(*REPLAY) as one:
        letters.until_begun(one.pid)
        one.kill()
    letters.go()
    codes = list[int]()

    def replayed() -> int:
        """The id of the process that has replayed, or 0 if the replay is refused."""
        process, code, _ = letters.replay()
        codes.append(code)
        return 0 if code else process

    two = until(replayed, "a replay after the lease")
    assert codes[0] == 1
    assert letters.handed_over == [(one.pid, 1), (two, 1), (two, 2), (two, 3)]
