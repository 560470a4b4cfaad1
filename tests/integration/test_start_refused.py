"""The start fails early with one message for each cause, on real servers, without a traceback."""

import json
import socket
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until, whole_lines
from tests.mongod import ReplicaSet, Standalone
from tests.orders import Orders


def refused(run: Daemon, code: int) -> str:
    run.start(ready=False)
    assert run.wait() == code, run.log
    assert "Traceback" not in run.log
    return run.log


def restart_helps(run: Daemon) -> bool:
    """What the last log line says about a restart; the state of a pod shows that line."""
    last = json.loads(whole_lines(run.log)[-1])
    assert last["exit_code"] == 1
    return bool(last["restart_helps"])


def mongodb(uri: str, seconds: float = 0.5) -> dict[str, object]:
    return {"uri": uri, "connect_timeout_seconds": seconds}


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_login_that_needs_a_missing_package_is_a_mistake_of_the_configuration(
    mongod: ReplicaSet, daemon: Make, driver: str
) -> None:
    uri = mongod.uri.replace("//", "//AKIA:secret@") + "&authMechanism=MONGODB-AWS"
    run = daemon(uri, mongodb={**mongodb(uri), "driver": driver})
    log = refused(run, 2)
    assert "mongodb.uri: MONGODB-AWS authentication requires pymongo-auth-aws" in log
    assert json.loads(whole_lines(run.log)[-1])["restart_helps"] is False


def test_a_start_without_a_server_says_who_does_not_answer(daemon: Make) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"mongodb://127.0.0.1:{port}/?replicaSet=rs0"
    run = daemon(uri, mongodb=mongodb(uri))
    assert f"127.0.0.1:{port} cannot be reached" in refused(run, 1)
    assert restart_helps(run)


def test_a_server_that_comes_within_connect_timeout_seconds_is_waited_for(
    mortal: ReplicaSet, daemon: Make
) -> None:
    """Meanwhile the process is alive but not ready, so no probe ends it."""
    mortal.stop()
    run = daemon(mortal.uri, mongodb=mongodb(mortal.uri, 60)).start(ready=False).until_answers()
    assert run.get("/livez")[0] == 200
    assert run.get("/readyz") == (503, "starting\n")
    mortal.start()
    until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert run.stop() == 0


@pytest.mark.parametrize(
    ("options", "scope", "sentence"),
    [
        ("", {"start_at": "2099-01-01T00:00:00Z"}, "scopes[0].start_at: 2099-01-01T00:00:00Z is"),
        ("&socketTimeoutMS=500", {}, "mongodb.uri: socketTimeoutMS=500 ends reads that wait"),
    ],
)
def test_settings_with_which_nothing_would_come_are_refused_by_the_check_and_the_start(
    mongod: ReplicaSet, daemon: Make, options: str, scope: dict[str, str], sentence: str
) -> None:
    scopes = [{"name": "orders", "database": "shop", **scope}]
    run = daemon(mongod.uri + options, scopes=scopes)
    run.configured()
    code, errors = run.refused("check", "--connect")
    assert (code, sentence in errors) == (1, True), errors
    assert sentence in refused(run, 2)


def test_a_standalone_server_is_refused(standalone: Standalone, daemon: Make) -> None:
    run = daemon(standalone.uri, mongodb=mongodb(standalone.uri))
    log = refused(run, 1)
    assert not restart_helps(run)
    assert "is a standalone server" in log
    assert "rs.initiate()" in log


ORDERS = {"db": "shop", "collection": "orders"}
FIND = ["find", "changeStream"]


def user(server: ReplicaSet, name: str, resource: dict[str, Any], actions: list[str]) -> str:
    """The URI of a user with only these privileges."""
    with server.client() as client:
        privileges = [{"resource": resource, "actions": actions}]
        client.admin.command("createRole", name, privileges=privileges, roles=[])
        client.admin.command("createUser", name, pwd="right", roles=[name])
    return server.uri_as(name, "right")


def test_a_missing_privilege_is_named_and_waited_for(guarded: ReplicaSet, daemon: Make) -> None:
    run = daemon(user(guarded, "only_finds", ORDERS, ["find"]))
    run.start(ready=False).until_answers()
    until(lambda: run.status().get("state") == "backing_off", "the wait")
    code, message = run.get("/readyz")
    assert code == 503
    assert "it needs the actions 'changeStream' and 'find'" in message
    assert "not authorized on shop to execute command aggregate (code 13" in message
    assert "lsid" not in message, "the whole command is quoted"
    with guarded.client() as client:
        privileges = [{"resource": ORDERS, "actions": FIND}]
        client.admin.command("updateRole", "only_finds", privileges=privileges)
    run.until_ready()
    assert run.stop() == 0


@pytest.mark.parametrize(
    ("role", "scope", "resource"),
    [
        ("collection", {"database": "shop", "collection": "orders"}, ORDERS),
        ("database", {"database": "shop"}, {"db": "shop", "collection": ""}),
        ("cluster", {}, {"db": "", "collection": ""}),
        ("read", {"database": "shop"}, None),
        ("readAnyDatabase", {}, None),
    ],
)
def test_the_privileges_that_docs_operations_names_suffice(
    guarded: ReplicaSet, daemon: Make, role: str, scope: dict[str, str], resource: Any
) -> None:
    """Only two actions, or a built-in role."""
    name = f"follows_{role}"
    with guarded.client() as client:
        if resource:
            uri = user(guarded, name, resource, FIND)
        else:
            roles = [{"role": role, "db": "shop" if scope else "admin"}]
            client.admin.command("createUser", name, pwd="right", roles=roles)
            uri = guarded.uri_as(name, "right")
        scopes = [{"name": "orders", "max_await_time_ms": 200, **scope}]
        run = daemon(uri, scopes=scopes).start()
        client.shop.orders.insert_one({"_id": role})
    until(lambda: run.ids() == [role], "the event")
    if resource:  # the cluster's identity and the oplog's window are not available
        assert run.metric("tailrace_oplog_window_seconds") is None
    (warning,) = run.logged("cluster.unidentified")
    assert (
        "grant the action replSetGetConfig on the cluster (the role clusterMonitor"
        in (warning["reason"])
    )
    assert run.stop() == 0


def test_with_the_right_to_read_its_id_a_cluster_is_told_from_its_namesake(
    guarded: ReplicaSet, mortal: ReplicaSet, daemon: Make
) -> None:
    """Both replica sets have the same name."""
    uri = user(guarded, "knows", {"cluster": True}, ["replSetGetConfig"])
    with guarded.client() as client:
        client.admin.command("grantRolesToUser", "knows", roles=[{"role": "read", "db": "shop"}])
        run = daemon(uri).start()
        client.shop.orders.insert_one({"_id": "namesake"})
    run.until_events(1)
    assert run.stop() == 0
    assert not run.logged("cluster.unidentified")
    assert "warning" not in run.command("check", "--connect")
    run.configuration["mongodb"]["uri"] = mortal.uri
    assert "belongs to the cluster rs0/" in run.start(ready=False).halts()


def test_a_port_in_use_is_refused(orders: Orders) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        log = refused(orders.daemon(http={"port": port}), 2)
    assert f"cannot listen on 127.0.0.1:{port}" in log


def test_a_handler_that_exits_when_it_is_imported_is_refused(orders: Orders) -> None:
    """Its ``sys.exit(0)`` does not end the service, which would look like a clean stop."""
    targets = {"mine": {"target": "mine:handle"}}
    log = refused(orders.daemon(targets=targets, source="import sys\nsys.exit(0)\n"), 2)
    assert "handlers.mine.target: 'mine:handle' cannot be imported: SystemExit: 0" in log
    assert len(log.splitlines()) == 1
