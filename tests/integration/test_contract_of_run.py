"""`tailrace run` through its outside contract alone.

Scripted are what no server does: it shows every command, and sends an operation type to come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.daemon import Daemon, Make, until
from tests.orders import Orders
from tests.scripted import ScriptedSet


@contextmanager
def refused(orders: Orders, code: int, collection: str = "orders") -> Iterator[None]:
    """No stream can be opened on the collection."""
    namespace = f"{orders.database}.{collection}"
    orders.server.fail("aggregate", "alwaysOn", errorCode=code, namespace=namespace)
    try:
        yield
    finally:
        orders.server.fail("aggregate", "off")


def until_answers(run: Daemon) -> None:
    """Its HTTP port is known."""
    until(lambda: run.logged("service.starting"), "the start")
    run.port = run.logged("service.starting")[0]["http_port"]


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_the_first_start_asks_for_now_and_limits_every_command(
    scripted: ScriptedSet, daemon: Make, driver: str
) -> None:
    run = daemon(scripted.uri, mongodb={"uri": scripted.uri, "driver": driver}).start()
    scripted.wait_for("getMore")
    stage = scripted.commands("aggregate")[0].change_stream
    assert stage is not None
    assert not {"resumeAfter", "startAfter", "startAtOperationTime"} & set(stage)
    of_drivers = {"hello", "ismaster", "isMaster", "endSessions"}
    own = [c for c in scripted.commands() if c.name == "hello" and "lsid" in c.document]
    sent = [*own, *(c for c in scripted.commands() if c.name not in of_drivers)]
    assert {"hello", "ping", "replSetGetConfig", "aggregate", "getMore"} <= {c.name for c in sent}
    for command in sent:
        assert command.document["maxTimeMS"] > 0, command.name
    assert scripted.commands("getMore")[0].document["maxTimeMS"] == 200
    assert run.stop() == 0


def test_an_unheard_of_operation_type_passes_through_unchanged(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = daemon(scripted.uri).start()
    scripted.append(
        {
            "operationType": "teleport",
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": 1},
            "newField": {"deep": [1, 2.5, None]},
        }
    )
    (event,) = run.until_events(1)
    assert event["operationType"] == "teleport"
    assert event["newField"]["deep"] == [{"$numberInt": "1"}, {"$numberDouble": "2.5"}, None]
    assert run.metric("tailrace_events_total", scope="orders", operation="teleport") == 1
    assert run.stop() == 0


def test_ready_is_said_only_while_every_scope_streams(orders: Orders) -> None:
    with refused(orders, 11600):
        run = orders.daemon().start(ready=False)
        until_answers(run)
        until(lambda: run.status().get("state") == "backing_off", "the first failure")
        assert run.get("/readyz")[0] == 503
        assert run.get("/livez")[0] == 200
    until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert run.status()["state"] in ("catching_up", "streaming", "caught_up")
    assert run.stop() == 0


def test_with_no_scope_left_to_follow_the_process_fails(orders: Orders) -> None:
    with refused(orders, 13):
        run = orders.daemon().start(ready=False)
        assert run.wait() == 1
    assert run.logged("service.failed")[0]["halted"] == ["orders"]
    assert "Traceback" not in run.log


def test_a_start_time_is_used_only_until_there_is_a_checkpoint(orders: Orders) -> None:
    begin = datetime.now(UTC).isoformat()
    orders.insert(0, 1)
    run = orders.daemon(scope={"start_at": begin}).start()
    run.until_events(2)
    assert run.stop() == 0
    run.start()
    orders.insert(2)
    run.until_events(3)
    assert run.stop() == 0
    assert run.ids() == [0, 1, 2]
    options = [entry["at"].split()[0] for entry in run.logged("stream.starting")]
    assert options == ["startAtOperationTime", "resumeAfter"]
