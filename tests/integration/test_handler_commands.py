"""An operator's commands for one handler of a scope; the other one gets nothing again."""

import json
from typing import Any

from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders

ALONE = ("orders", "--handler", "new")


def operations(run: Daemon, name: str) -> list[tuple[str, Any]]:
    """The changes and rows that a handler has got: operation and ``_id``."""
    return [
        (event["operationType"], event["documentKey"]["_id"])
        for event in run.events(name)
        if "documentKey" in event
    ]


def test_a_handler_is_paused_resumed_and_gets_a_snapshot_alone(orders: Orders) -> None:
    orders.insert(1)
    run = orders.daemon(
        handlers={name: {"type": "jsonl", "path": name} for name in ("old", "new")},
        routes=[{"scope": "orders", "handlers": ["old", "new"]}],
        http={"port": free_port()},
    ).start()

    def state() -> str:
        return str(run.status()["handlers"]["new"]["state"])

    orders.insert(2)
    for name in ("old", "new"):
        run.until_events(1, name)
    assert "handler 'new' of scope 'orders' is paused" in run.command("scopes", "pause", *ALONE)
    assert (state(), run.status()["handlers"]["old"]["state"]) == ("paused", "attached")
    orders.insert(3)
    run.until_events(2, "old")
    code, shown = run.refused("status", "--json")
    assert code == 1
    assert run.get("/readyz")[0] == 200
    degraded = json.loads(run.get("/status")[1])["degraded"]
    assert any("handler 'new' is paused: paused by " in line for line in degraded), shown
    assert run.metric("tailrace_subscription_state", handler="new", state="paused") == 1
    positions = json.loads(run.command("scopes", "positions", *ALONE, "--json"))["positions"]
    assert {tuple(each["handlers"]) for each in positions} == {("new",)}

    assert "is resumed" in run.command("scopes", "resume", *ALONE)
    until(lambda: state() == "attached", "the handler on the shared stream")
    assert operations(run, "new") == [("insert", 2), ("insert", 3)]

    started = run.command("snapshot", "start", *ALONE)
    assert started.startswith("snapshot "), started
    rows = [("read", number) for number in (1, 2, 3)]
    until(lambda: operations(run, "new")[2:] == rows, "the documents")
    until(lambda: state() == "attached", "the handler on the shared stream")
    snapshot = run.status()["handlers"]["new"]["snapshot"]
    assert (snapshot["state"], snapshot["documents"]) == ("done", 3)
    assert run.status()["snapshot"] is None
    assert "is done" in run.command("snapshot", "status", *ALONE)

    orders.insert(4)
    until(lambda: ("insert", 4) in operations(run, "new"), "the next change")
    until(lambda: ("insert", 4) in operations(run, "old"), "the next change")
    until(lambda: len(orders.server.streams(orders.database)) == 1, "a single stream")
    assert run.stop() == 0, run.log
    assert operations(run, "old") == [("insert", number) for number in (2, 3, 4)]
    assert operations(run, "new") == [("insert", 2), ("insert", 3), *rows, ("insert", 4)]
