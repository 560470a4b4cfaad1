"""Pause, resume and seek as operators use them: over HTTP and in the shell, on two processes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.actions import act
from tests.daemon import Daemon, Make, until
from tests.machine import free_port
from tests.mongod import ReplicaSet

REPLICAS = {"lease_seconds": 60}


def asked(run: Daemon, path: str, **body: Any) -> tuple[int, Any]:
    """The status and the answer to an action on the scope."""
    return act(run, f"/scopes/orders/{path}", **body)


def made(daemon: Make, mongod: ReplicaSet, database: str, **sections: Any) -> Daemon:
    fields = {"name": "orders", "database": database, "collection": "c", "max_await_time_ms": 200}
    return daemon(mongod.uri, scopes=[fields], http={"port": free_port()}, **sections)


def test_a_scope_is_paused_moved_undone_and_resumed_over_http(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = made(daemon, mongod, database)
    run.configuration["routes"][0]["max_lag"] = "1s"
    run.start()
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(5)])
        run.until_events(5)

        def late() -> float | None:
            client[database].elsewhere.insert_one({})  # the server's time goes on
            return run.metric("tailrace_freshness_breached", handler="file")

        begun = run.events()[0]["clusterTime"]["$timestamp"]["t"]
        at = datetime.fromtimestamp(begun, UTC).isoformat()
        status, paused = asked(run, "pause")
        assert (status, paused["state"]) == (202, "paused")
        assert run.get("/readyz")[0] == 200
        assert "paused by" in run.get("/readyz")[1]
        assert run.metric("tailrace_watcher_state", scope="orders", state="paused") == 1
        client[database].c.insert_one({"_id": 5})
        until(lambda: late() == 1, "the breach of max_lag")
        assert run.status()["handlers"]["file"]["freshness"]["breached"]
        tried = asked(run, "seek", at=at, dry_run=True)[1]
        assert tried["direction"] in ("back", "none")
        status, moved = asked(run, "seek", at=at)
        assert (status, moved["state"], len(run.ids())) == (202, "paused", 5)
        assert asked(run, "resume")[0] == 202
        run.until_events(11)
        assert run.ids() == [*range(5), *range(6)]
        until(lambda: late() == 0, "a handler that is fresh again")
        until(lambda: run.status()["checkpoint"]["kind"] == "idle", "the save")

        def saved() -> Any:
            return json.loads(run.get("/scopes/orders/positions")[1])["positions"]

        def is_there() -> bool:
            tried = asked(run, "seek", token=saved()[0]["token"], dry_run=True)[1]
            return bool(tried["direction"] == "none")

        until(is_there, "the save of all that is handled")
        positions = saved()
        assert 1 < len(positions) <= 101
        sought = asked(run, "seek", token=positions[0]["token"])[1]
        assert sought["direction"] in ("none", "back")  # an idle stream may have gone on
        assert asked(run, "seek", undo=True)[0] == 202
    sentence = "is before the oplog, which begins at"
    for body, code in (
        ({"at": "2001-01-01T00:00:00Z"}, 422),
        ({"at": "2099-01-01T00:00:00Z"}, 422),
    ):
        status, errors = asked(run, "seek", **body)
        assert status == code, errors
    assert sentence in asked(run, "seek", at="2001-01-01T00:00:00Z")[1]
    code, errors = run.refused("scopes", "seek", "orders", "--at", "2001-01-01T00:00:00Z")
    assert (code, sentence in errors, errors.count("\n")) == (2, True, 1)
    assert [log["to"] for log in run.logged("action.done") if log["action"] == "pause"] == [
        "paused"
    ]
    assert [log["by"] for log in run.logged("scope.sought")] == ["127.0.0.1"] * 3
    assert not run.logged("scope.halted")
    assert run.stop() == 0


def test_a_span_of_time_is_replayed_into_a_file_that_the_daemon_writes(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = made(daemon, mongod, database).start()
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(5)])
        run.until_events(5)
    at = f"{run.events()[0]['clusterTime']['$timestamp']['t']}"
    since = datetime.fromtimestamp(int(at), UTC).isoformat()
    asks = ("scopes", "replay", "orders", "--from", since, "--handler", "file")
    assert "Dry run: nothing was handed over" in run.command(*asks, "--dry-run")
    output = run.command(*asks, "--collection", "c")
    assert output == "scope 'orders': the replay is done: 5 changes were handed over\n"
    assert run.ids() == [*range(5), *range(5)]
    code, error = run.refused(*asks, "--collection", "odd")
    assert (code, "does not have the collection 'odd'" in error) == (2, True)
    output = run.command(*asks, "--key", "3", "--json")
    assert (json.loads(output)["state"], json.loads(output)["handled"]) == ("done", 1)
    assert run.ids()[10:] == [3]
    assert run.status()["state"] in ("streaming", "caught_up")
    assert run.stop() == 0


def test_a_span_of_time_is_written_to_a_new_file_without_a_daemon(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = made(daemon, mongod, database)
    run.configured()
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(5)])
        begun = client.admin.command("ping")["operationTime"].as_datetime()
        client[database].c.delete_one({"_id": 3})
        client[database].d.insert_one({"_id": 3})
    asks = ("scopes", "replay", "orders", "--from", begun.isoformat(), "--key", "3")
    assert "Dry run" in run.command(*asks, "--to-file", "of-3.jsonl", "--dry-run")
    assert not list(run.directory.glob("of-3*"))
    result = json.loads(run.command(*asks, "--to-file", "of-3.jsonl", "--canonical", "--json"))
    assert "2 changes were written to of-3.jsonl" in result["message"]
    assert result["written"] == 2
    assert [each["operationType"] for each in run.events("of-3.jsonl")] == ["insert", "delete"]
    assert run.ids("of-3.jsonl") == [3, 3]
    for file, code, sentence in (
        ("of-3.jsonl", 2, "is there already: choose another name, or remove it"),
        ("nowhere/of-3.jsonl", 1, "cannot be written: No such file or directory"),
    ):
        found, result = run.refused(*asks, "--to-file", file)
        assert (found, sentence in result, result.count("\n")) == (code, True, 1), result
    assert [path.name for path in run.directory.glob("*of-3*")] == ["of-3.jsonl"]


def test_the_shell_asks_the_daemon_and_the_store_where_none_runs(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = made(daemon, mongod, database).start()
    with mongod.client() as client:
        client[database].c.insert_one({"_id": 1})
        run.until_events(1)
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        assert run.command("scopes", "pause", "orders") == "scope 'orders' is paused\n"
        assert run.stop() == 0
        client[database].c.insert_one({"_id": 2})
        assert "Scope 'orders' is paused by " in run.command("scopes", "list")
        run.start()
        until(lambda: run.status()["state"] == "paused", "a pause that outlives a restart")
        assert run.stop() == 0
        output = run.command("scopes", "resume", "orders")
        assert output.startswith("scope 'orders' is resumed: no daemon runs here: stored")
        tried = run.command("scopes", "seek", "orders", "--at", at, "--dry-run")
        assert "Dry run" in tried
        assert "CLUSTER TIME" in run.command("scopes", "positions", "orders")
        run.start()
        run.until_events(2)
    assert run.ids() == [1, 2]


def test_a_process_that_stands_by_passes_an_order_on_through_the_store(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    store = {"type": "mongodb", "database": f"{database}_store"}
    one, two = (
        made(
            daemon,
            mongod,
            database,
            directory=name,
            store=store,
            replicas=REPLICAS | {"name": name},
        )
        for name in ("one", "two")
    )
    one.start()
    two.start()
    until(lambda: two.status().get("state") == "standby", "that the other stands by")
    status, answer = asked(two, "pause")
    assert status == 202
    assert "stored; one applies it within a second" in answer["message"]
    until(lambda: one.status()["state"] == "paused", "that the owner pauses")
    assert one.stop() == 0
    until(lambda: two.status()["state"] == "paused", "that the next owner pauses, too")
    assert asked(two, "resume")[0] == 202
    with mongod.client() as client:
        client[database].c.insert_one({"_id": 1})
    two.until_events(1)


def test_a_pause_during_a_snapshot_keeps_its_place(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(300)])
    slow = {"mode": "initial", "chunk_documents": 10, "documents_per_second": 200}
    run = made(daemon, mongod, database)
    run.configuration["scopes"][0]["snapshot"] = slow
    run.start()
    until(lambda: len(run.ids()) > 30, "some rows")
    assert asked(run, "pause")[1]["state"] == "paused"
    rows = len(run.ids())
    assert rows < 300
    assert run.status()["snapshot"]["state"] == "reading"
    assert run.stop() == 0
    run.start()
    until(lambda: run.status()["state"] == "paused", "the pause")
    assert len(run.ids()) == rows
    assert asked(run, "resume")[0] == 202
    run.until_copied()
    assert sorted(run.ids()) == [*range(300)]


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_snapshot_that_is_ordered_while_a_scope_is_paused_survives_a_kill(
    mongod: ReplicaSet, database: str, daemon: Make, driver: str
) -> None:
    run = made(daemon, mongod, database, mongodb={"uri": mongod.uri, "driver": driver})
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(5)])
    run.start()
    assert asked(run, "pause")[1]["state"] == "paused"
    assert asked(run, "snapshot", action="start")[0] == 202
    run.kill()
    run.start()
    snapshot = run.status()["snapshot"]
    assert (snapshot["mode"], snapshot["state"]) == ("requested", "planned")
    assert asked(run, "snapshot", action="start")[0] == 409
    assert asked(run, "resume")[0] == 202
    run.until_copied()
    assert run.stop() == 0
    assert sorted(run.ids()) == [*range(5)]
    run.start()
    assert run.status()["snapshot"]["id"] == snapshot["id"]
    assert run.stop() == 0
    assert len(run.ids()) == 5
