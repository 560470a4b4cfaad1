"""The start refuses early: one message each, tried on the real thing, and no traceback."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until, whole_lines
from tests.mongod import ReplicaSet, Standalone
from tests.scripted import ScriptedSet

WRONG = "wrong-one"


def refused(run: Daemon, code: int) -> str:
    run.start(ready=False)
    assert run.wait() == code, run.log
    assert "Traceback" not in run.log
    return run.log


def restart_helps(run: Daemon) -> bool:
    """What the last line says: it is what the state of a pod shows."""
    last = json.loads(whole_lines(run.log)[-1])
    assert last["exit_code"] == 1
    return bool(last["restart_helps"])


def mongodb(uri: str, seconds: float = 0.5) -> dict[str, object]:
    return {"uri": uri, "connect_timeout_seconds": seconds}


def test_nobody_answers(daemon: Make) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"mongodb://127.0.0.1:{port}/?replicaSet=rs0"
    run = daemon(uri, mongodb=mongodb(uri))
    log = refused(run, 1)
    assert f"127.0.0.1:{port} cannot be reached" in log
    assert restart_helps(run)


def test_a_server_that_comes_within_the_time_is_waited_for(
    mortal: ReplicaSet, daemon: Make
) -> None:
    """Meanwhile the process is alive and not ready: no probe ends it."""
    mortal.stop()
    run = daemon(mortal.uri, mongodb=mongodb(mortal.uri, 60)).start(ready=False)
    run.port = until(lambda: run.logged("service.starting"), "the start")[0]["http_port"]
    assert run.get("/livez")[0] == 200
    assert run.get("/readyz") == (503, "starting\n")
    mortal.start()
    until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert run.stop() == 0


def test_another_replica_set(mongod: ReplicaSet, daemon: Make) -> None:
    uri = mongod.uri.replace("replicaSet=rs0", "replicaSet=other")
    run = daemon(uri, mongodb=mongodb(uri))
    log = refused(run, 1)
    assert not restart_helps(run)
    assert "belongs to replica set 'rs0', but mongodb.uri says replicaSet=other" in log


@pytest.mark.parametrize("query", ["", "?replicaSet=rs0", "?directConnection=true"])
def test_a_standalone_server(standalone: Standalone, daemon: Make, query: str) -> None:
    uri = standalone.uri + query
    run = daemon(uri, mongodb=mongodb(uri))
    log = refused(run, 1)
    assert not restart_helps(run)
    assert "is a standalone server" in log
    assert "rs.initiate()" in log


def test_bad_credentials_are_told_without_the_password(guarded: ReplicaSet, daemon: Make) -> None:
    uri = guarded.uri_as("root", WRONG)
    run = daemon(uri, mongodb=mongodb(uri, 5))
    log = refused(run, 1)
    assert not restart_helps(run)
    assert "refuses the credentials of user 'root'" in log
    assert WRONG not in log


def test_no_credentials_where_they_are_demanded(guarded: ReplicaSet, daemon: Make) -> None:
    log = refused(daemon(guarded.uri, mongodb=mongodb(guarded.uri, 5)), 1)
    assert "a client without credentials" in log


def user(server: ReplicaSet, name: str, *privileges: tuple[dict[str, Any], list[str]]) -> str:
    """The URI of a user who may do just this."""
    with server.client() as client:
        told = [{"resource": resource, "actions": actions} for resource, actions in privileges]
        client.admin.command("createRole", name, privileges=told, roles=[])
        client.admin.command("createUser", name, pwd="right", roles=[name])
    return server.uri_as(name, "right")


ORDERS = {"db": "shop", "collection": "orders"}


@pytest.mark.parametrize("actions", [["find"], ["changeStream"]], ids=str)
def test_a_missing_privilege_halts_the_scope_and_names_it(
    guarded: ReplicaSet, daemon: Make, actions: list[str]
) -> None:
    run = daemon(user(guarded, f"only_{actions[0]}", (ORDERS, actions)))
    log = refused(run, 1)
    assert "it needs the actions 'changeStream' and 'find'" in log
    assert run.logged("service.failed")[0]["halted"] == ["orders"]
    assert not restart_helps(run)


@pytest.mark.parametrize(
    ("name", "scope", "resource"),
    [
        ("collection", {"database": "shop", "collection": "orders"}, ORDERS),
        ("database", {"database": "shop"}, {"db": "shop", "collection": ""}),
        ("cluster", {}, {"db": "", "collection": ""}),
    ],
)
def test_the_two_actions_are_all_that_it_needs(
    guarded: ReplicaSet, daemon: Make, name: str, scope: dict[str, str], resource: dict[str, str]
) -> None:
    """As docs/operations.md says; the cluster's identity and the oplog's window are left out."""
    uri = user(guarded, f"follows_{name}", (resource, ["find", "changeStream"]))
    scopes = [{"name": "orders", "max_await_time_ms": 200, **scope}]
    run = daemon(uri, name, scopes=scopes).start()
    with guarded.client() as client:
        client.shop.orders.insert_one({"_id": name})
    until(lambda: run.ids() == [name], "the event")
    assert run.stop() == 0
    assert run.metric("tailrace_oplog_window_seconds") is None


@pytest.mark.parametrize(
    ("role", "scope"), [("read", {"database": "shop"}), ("readAnyDatabase", {})]
)
def test_the_roles_that_are_named_suffice(
    guarded: ReplicaSet, daemon: Make, role: str, scope: dict[str, str]
) -> None:
    with guarded.client() as client:
        roles = [{"role": role, "db": "shop" if scope else "admin"}]
        client.admin.command("createUser", f"has_{role}", pwd="right", roles=roles)
    scopes = [{"name": "orders", "max_await_time_ms": 200, **scope}]
    run = daemon(guarded.uri_as(f"has_{role}", "right"), scopes=scopes).start()
    with guarded.client() as client:
        client.shop.orders.insert_one({"_id": role})
    until(lambda: run.ids() == [role], "the event")
    assert run.stop() == 0


def test_an_unusable_uri_is_told_without_its_password(daemon: Make) -> None:
    log = refused(daemon("mongodb://me:pass@word@host/?replicaSet=rs0"), 2)
    assert "mongodb.uri" in log
    assert "pass@word" not in log


def test_a_port_in_use(scripted: ScriptedSet, daemon: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        log = refused(daemon(scripted.uri, http={"port": port}), 2)
    assert f"cannot listen on 127.0.0.1:{port}" in log


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nowhere:handle", "cannot be imported: ModuleNotFoundError"),
        ("mine:missing", "cannot be imported: AttributeError"),
        ("mine:broken_at_import", "cannot be imported"),
        ("mine:plain", "is no coroutine function"),
        ("mine:two", "must take one argument"),
    ],
)
def test_a_handler_that_does_not_fit(
    scripted: ScriptedSet, daemon: Make, target: str, expected: str
) -> None:
    run = daemon(
        scripted.uri,
        handlers={"mine": {"type": "python", "target": target}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
    )
    (run.directory / "mine.py").write_text(
        "def plain(event): ...\nasync def two(event, other): ...\n"
    )
    log = refused(run, 2)
    assert "handlers.mine.target" in log
    assert expected in log
    assert not scripted.commands("aggregate")


def test_a_handler_that_leaves_when_it_is_imported(scripted: ScriptedSet, daemon: Make) -> None:
    """Its ``sys.exit(0)`` is not the service's end: that would look like a clean stop."""
    run = daemon(
        scripted.uri,
        handlers={"mine": {"type": "python", "target": "leaves:handle"}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
    )
    (run.directory / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    log = refused(run, 2)
    assert "handlers.mine.target: 'leaves:handle' cannot be imported: SystemExit: 0" in log
    assert len(log.splitlines()) == 1


def test_files_that_cannot_be_written(scripted: ScriptedSet, daemon: Make) -> None:
    run = daemon(scripted.uri, store={"path": "file/below/tailrace.db"})
    (run.directory / "file").write_text("in the way")
    assert "store.path" in refused(run, 2)
    run = daemon(
        scripted.uri, "other", handlers={"file": {"type": "jsonl", "path": "file/below/events"}}
    )
    (run.directory / "file").write_text("in the way")
    assert "handlers.file.path" in refused(run, 2)


def test_a_corrupt_checkpoint_file_is_no_fresh_start(scripted: ScriptedSet, daemon: Make) -> None:
    run = daemon(scripted.uri)
    (run.directory / "tailrace.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
    log = refused(run, 2)
    assert "store.path" in log
    assert (run.directory / "tailrace.db").read_bytes().endswith(b"\xff")
    assert not scripted.commands("aggregate")


def test_a_checkpoint_of_another_cluster_halts_the_scope(daemon: Make) -> None:
    with ScriptedSet() as first:
        run = daemon(first.uri).start()
        first.insert("shop.orders", {"_id": 1})
        run.until_events(1)
        assert run.stop() == 0
    with ScriptedSet() as second:
        run.configuration["mongodb"] = {"uri": second.uri}
        log = refused(run, 1)
        assert "belongs to the cluster" in log
        assert "tailrace checkpoints reset orders" in log
        assert not second.commands("aggregate")


def test_a_changed_pipeline_goes_on_from_the_time(scripted: ScriptedSet, daemon: Make) -> None:
    run = daemon(scripted.uri).start()
    for number in range(3):
        scripted.insert("shop.orders", {"_id": number})
    run.until_events(3)
    assert run.stop() == 0
    scripted.insert("shop.orders", {"_id": 3})
    scripted.clear()
    run.configuration["scopes"][0]["pipeline"] = [{"$match": {"operationType": "insert"}}]
    run.start()
    until(lambda: 3 in run.ids(), "the event after the change")
    stage = scripted.commands("aggregate")[0].change_stream
    assert stage is not None
    assert "startAtOperationTime" in stage
    assert "resumeAfter" not in stage
    assert run.stop() == 0
    assert run.logged("checkpoint.pipeline_changed")
