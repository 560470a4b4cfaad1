"""A real server is killed or suspended, and cursors die, while changes are written."""

import signal

import pytest

from tests.daemon import Make, until
from tests.load import assert_whole, until_noticed, until_resumed
from tests.mongod import ReplicaSet
from tests.mongod.operations import operations
from tests.orders import Orders


@pytest.fixture
def orders(mortal: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(mortal, database, daemon)


def test_a_server_that_is_killed_and_started_again_loses_no_change(orders: Orders) -> None:
    run = orders.daemon(driver="pymongo").start()
    with orders.load() as load:
        load.more()
        orders.server.stop(signal.SIGKILL)
        until(lambda: run.get("/readyz")[0] == 503, "that it notices")
        orders.server.start()
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
        load.more()
    assert run.status()["resumes"] + run.status()["restarts"] >= 1
    assert_whole(run, load.written)


def test_a_server_that_hangs_for_a_while_loses_no_change(orders: Orders) -> None:
    """Longer than the driver's server selection: the watcher restarts, and nothing is lost."""
    orders.uri += "&serverSelectionTimeoutMS=500"
    run = orders.daemon().start()
    with orders.load() as load:
        load.more()
        orders.server.signal_member(0, signal.SIGSTOP)
        until(lambda: run.status()["restarts"] == 1, "the restart")
        assert run.status()["resumes"] == 0
        assert run.get("/livez")[0] == 200
        orders.server.signal_member(0, signal.SIGCONT)
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
        load.more()
    assert run.metric("tailrace_watcher_restarts_total", reason="stream") is not None
    assert_whole(run, load.written)


# The errors that mongod 6.0 itself labels as resumable, found with its fail point.
LABELLED = [6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13435, 13436]


def test_each_error_that_the_server_calls_resumable_is_resumed(orders: Orders) -> None:
    run = orders.daemon().start()
    with orders.load() as load:
        for code in LABELLED:
            load.more(3)
            # Again if another cursor of the server was the one that failed.
            until_noticed(
                lambda code=code: orders.server.fail_reads(code),  # type: ignore[misc]
                lambda: run.status()["resumes"],
            )
        load.more()
    assert run.status()["restarts"] == 0
    assert_whole(run, load.written)


def test_killed_cursors_are_opened_again(orders: Orders) -> None:
    """A cursor is killed during a read, and later between two reads.

    During a read it fails with CursorKilled (237), which has no label: an operator decided this, so
    the stream does not resume. Between two reads, it is as if the server had removed an idle
    cursor.
    """
    run = orders.daemon().start()
    with orders.load() as load:
        load.more()
        until(lambda: orders.server.kill_cursors(orders.database), "a cursor to kill")
        until(lambda: run.status()["restarts"] + run.status()["resumes"] == 1, "the recovery")
        # Before the first change after a restart, the history is read with a cursor of its own.
        written = load.written
        until(lambda: len(run.ids()) > written, "a change of the new cursor")
        until(lambda: len(orders.server.streams(orders.database)) == 1, "one cursor")
        before = run.status()
        run.signal(signal.SIGSTOP)
        until(lambda: not reading(orders.server, orders.database), "the end of the read")
        assert orders.server.kill_cursors(orders.database) == 1
        run.signal(signal.SIGCONT)
        until_resumed(run, before["resumes"] + 1)
        load.more()
    assert run.metric("tailrace_stream_resumes_total", reason="CursorNotFound") is not None
    assert run.status()["restarts"] == before["restarts"]
    assert_whole(run, load.written)


def reading(server: ReplicaSet, database: str) -> bool:
    """Whether a getMore on the database is in progress."""
    with server.direct(0) as client:
        running = operations(client, {"op": "getmore"}, "ns", allUsers=True)
    return any(each["ns"].startswith(f"{database}.") for each in running)
