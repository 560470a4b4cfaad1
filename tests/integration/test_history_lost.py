"""A position whose history the server has lost: halted by default, skipped if configured.

The oplog is a real one of 1 MB, truncated by mongod itself. The tests at the end need the scripted
server: which command reports the loss, and which start points are tried in which order.
"""

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.actions import act
from tests.daemon import Daemon, Make, until
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.scripted import Command, ScriptedSet


@pytest.fixture
def forgetful(small: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(small, database, daemon)


def followed(orders: Orders, driver: str = "motor", **scope: Any) -> Daemon:
    """A daemon that has handled one event."""
    run = orders.daemon(driver=driver, scope=scope).start()
    orders.insert(0)
    run.until_events(1)
    return run


def gaps(run: Daemon) -> list[dict[str, Any]]:
    shown = run.command("checkpoints", "show", "orders", "--json")
    found: list[dict[str, Any]] = json.loads(shown)["gaps"]
    return found


def test_on_history_lost_halt_names_remedies_and_each_of_them_works(forgetful: Orders) -> None:
    run = followed(forgetful)
    assert run.stop() == 0
    forgetful.insert(1)
    forgetful.server.forget_history()
    for _ in range(2):  # it halts again as long as nothing is done
        run.start(ready=False)
        error = run.halts()
    again, _ = (entry["error"] for entry in run.logged("scope.halted"))
    assert error == again
    assert "286" in error
    assert "on_history_lost: snapshot" in error
    assert run.ids() == [0]
    assert gaps(run) == []
    # What the message names, while the process stays: a time that the oplog has, and a snapshot.
    run.configuration["http"] = {"port": free_port()}
    run.start(ready=False).until_answers()
    until(lambda: run.status().get("state") == "halted", "the halt")
    assert "tailrace scopes seek orders --at" in error
    now = datetime.now(UTC).isoformat()
    forgetful.insert(2)
    run.command("scopes", "seek", "orders", "--at", now)
    run.command("scopes", "restart", "orders")
    assert "tailrace snapshot start orders" in error
    until(lambda: run.status()["state"] == "caught_up", "the stream")
    run.command("snapshot", "start", "orders")
    until(lambda: run.events()[-1]["operationType"] == "snapshotEnd", "the snapshot")
    assert run.stop() == 0
    assert sorted(run.ids()) == [0, 0, 1, 2, 2]


def test_a_paused_scope_says_that_the_oplog_left_it_behind(forgetful: Orders) -> None:
    run = followed(forgetful)
    assert act(run, "/scopes/orders/pause")[0] == 202
    forgetful.insert(1)
    forgetful.server.forget_history()
    lost = "changes are lost (see on_history_lost)"
    until(lambda: lost in run.status()["reason"], "the reason")
    assert lost in run.get("/readyz")[1]
    until(lambda: run.logged("history.at_risk"), "the line")
    assert run.stop() == 0


def test_on_history_lost_snapshot_closes_the_gap(forgetful: Orders) -> None:
    """Documents deleted in the gap are those that neither a row nor a later event names."""
    run = followed(forgetful, on_history_lost="snapshot")
    forgetful.insert(1)
    run.until_events(2)
    assert run.stop() == 0
    forgetful.insert(2)
    with forgetful.server.client() as client:
        client[forgetful.database].orders.delete_one({"_id": 0})
    forgetful.server.forget_history()
    run.start()
    until(lambda: run.events()[-1]["operationType"] == "snapshotEnd", "the snapshot")
    assert [event["operationType"] for event in run.events()[2:]] == [
        *("snapshotBegin", "read", "read", "snapshotEnd"),
    ]
    assert run.events()[2]["snapshot"]["mode"] == "gap"
    assert sorted(run.ids()[2:]) == [1, 2]
    assert len(gaps(run)) == 1


def test_on_history_lost_skip_continues_at_the_end_and_records_the_gap(forgetful: Orders) -> None:
    run = followed(forgetful, "pymongo", on_history_lost="skip")
    assert run.stop() == 0
    forgetful.insert(1)
    forgetful.server.forget_history()
    run.start()
    until(lambda: run.logged("history.skipped"), "the gap")
    forgetful.insert(2)
    until(lambda: run.ids() == [0, 2], "the event behind the gap")
    assert (run.metric("tailrace_history_lost_total", scope="orders") or 0) >= 1
    assert run.status()["last_error"]
    assert run.stop() == 0
    (gap,) = gaps(run)
    assert gap["policy"] == "skip"
    assert "286" in gap["reason"]
    assert gap["since"] < gap["until"]
    # The scope is past the gap: the next start shows nothing of it.
    forgetful.insert(3)
    run.start()
    run.until_events(3)
    assert run.stop() == 0
    assert run.ids() == [0, 2, 3]
    assert gaps(run) == [gap]


@pytest.mark.parametrize("policy", ["halt", "skip"])
def test_a_stream_that_the_oplog_overtakes_has_lost_its_history(
    forgetful: Orders, policy: str
) -> None:
    """The process is suspended for longer than the server remembers, and then continues."""
    run = followed(forgetful, on_history_lost=policy)
    until(lambda: run.status()["checkpoint"], "a checkpoint")
    run.signal(signal.SIGSTOP)
    forgetful.insert(1)
    forgetful.server.forget_history()
    run.signal(signal.SIGCONT)
    if policy == "halt":
        run.halts()
        assert "286" in run.logged("scope.halted")[0]["error"]
        assert gaps(run) == []
        return
    until(lambda: run.logged("history.skipped"), "the gap")
    forgetful.insert(2)
    until(lambda: 2 in run.ids(), "the event behind the gap")
    assert run.stop() == 0
    assert len(gaps(run)) == 1


@pytest.mark.parametrize("policy", ["halt", "skip"])
def test_history_that_is_lost_in_mid_snapshot(forgetful: Orders, policy: str) -> None:
    """It continues after the gap. If it halted, the reset position begins with another snapshot."""
    slow = {"mode": "initial", "chunk_documents": 10, "documents_per_second": 100}
    run = forgetful.daemon(scope={"on_history_lost": policy, "snapshot": slow})
    forgetful.insert(*range(200))
    run.start().until_events(50)
    run.signal(signal.SIGSTOP)
    forgetful.insert(1000)
    forgetful.server.forget_history()
    run.signal(signal.SIGCONT)
    if policy == "halt":
        run.halts()
        run.command("checkpoints", "reset", "orders")
        run.start()
    until(lambda: run.events()[-1]["operationType"] == "snapshotEnd", "the snapshot")
    kinds = [event["operationType"] for event in run.events()]
    begins = [at for at, kind in enumerate(kinds) if kind == "snapshotBegin"]
    assert len(begins) == (2 if policy == "halt" else 1)
    since = [
        event["documentKey"]["_id"] for event in run.events() if event["operationType"] == "read"
    ]
    del since[: kinds[: begins[-1]].count("read")]
    ids = [int(each["$numberInt"]) for each in since]
    assert ids == sorted(set(ids))
    assert set(ids) >= {*range(200), *([1000] if policy == "halt" else [])}
    assert len(gaps(run)) == (policy == "skip")


def test_an_idle_scope_outlives_any_oplog(forgetful: Orders) -> None:
    """Writes of others advance its position, so there is no history to lose."""
    run = followed(forgetful)
    first = run.status()["checkpoint"]["token"]
    for _ in range(2):
        forgetful.server.forget_history()
        with forgetful.server.client() as client:
            now = client.admin.command("ping")["operationTime"].as_datetime().isoformat()
        until(lambda now=now: run.status()["checkpoint"]["cluster_time"] > now, "a later position")
    assert run.status()["checkpoint"]["token"] != first
    assert run.stop() == 0
    forgetful.insert(1)
    run.start()
    run.until_events(2)
    assert run.stop() == 0
    assert run.ids() == [0, 1]


def test_lost_history_in_mid_stream_is_first_retried_from_the_checkpoint(
    orders: Orders,
) -> None:
    run = followed(orders)
    until(lambda: run.status()["state"] == "caught_up", "some reads")
    orders.server.fail("getMore", appName="tailrace", errorCode=280)
    until(lambda: run.status()["restarts"] == 1, "the restart")
    orders.insert(1)
    run.until_events(2)
    assert run.stop() == 0
    assert run.ids() == [0, 1]


# --- on the scripted server ------------------------------------------------------------------


def followed_once(server: ScriptedSet, daemon: Make) -> Daemon:
    """A daemon that has handled one event and stopped."""
    run = daemon(server.uri)
    run.configuration["scopes"][0]["on_history_lost"] = "skip"
    run.start()
    server.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    assert run.stop() == 0
    server.noop()
    server.insert("shop.orders", {"_id": 1})
    server.noop()
    server.clear()
    return run


def starts(server: ScriptedSet) -> list[dict[str, Any]]:
    options = {"resumeAfter", "startAfter", "startAtOperationTime"}
    stages = [
        command.change_stream or {}
        for command in server.commands("aggregate")
        if "comment" not in command.document  # that of a probe
    ]
    return [{name: stage[name] for name in options & set(stage)} for stage in stages]


def test_an_aggregate_that_reports_lost_history_is_not_repeated(
    scripted: ScriptedSet, daemon: Make
) -> None:
    """Each start point is tried once, from the best to the worst."""
    run = followed_once(scripted, daemon)
    scripted.truncate_oplog()
    scripted.behave(history_lost_on="aggregate")
    run.start(ready=False)
    until(lambda: run.logged("history.skipped"), "the gap")
    scripted.insert("shop.orders", {"_id": 2})
    until(lambda: run.ids() == [0, 2], "the event behind the gap")
    assert run.stop() == 0
    tried = starts(scripted)
    assert tried[-1] == {}
    assert len({repr(start) for start in tried}) == len(tried), "a dead start point came twice"
    assert len(gaps(run)) == 1


def test_the_time_replaces_a_refused_token_without_a_gap(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = followed_once(scripted, daemon)

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


def test_no_history_is_lost_where_the_server_refuses_every_stream(
    scripted: ScriptedSet, daemon: Make
) -> None:
    """Also without a position: then the code says something about the server, not the position."""
    run = followed_once(scripted, daemon)
    refused = {"ok": 0, "code": 286, "codeName": "ChangeStreamHistoryLost", "errmsg": "no"}
    refuses = True
    scripted.on_command(lambda each: refused if refuses and each.name == "getMore" else None)
    run.start(ready=False).until_answers()
    until(lambda: len(run.logged("watcher.restarting")) > 1, "two restarts")
    # The server accepts each opening, so the process is ready for a moment in each attempt.
    until(lambda: run.get("/readyz")[0] == 503, "that it is not ready")
    refuses = False
    until(lambda: 1 in run.ids(), "the next event")
    assert run.stop() == 0
    assert gaps(run) == []
