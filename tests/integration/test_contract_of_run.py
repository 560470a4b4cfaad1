"""`tailrace run` through its outside contract alone, on the scripted server."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from bson import Timestamp

from tests.daemon import Daemon, until
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]


def insert_many(server: ScriptedSet, first: int, count: int, ns: str = "shop.orders") -> None:
    for number in range(first, first + count):
        server.insert(ns, {"_id": number})


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


def test_ready_is_said_only_while_every_scope_streams(scripted: ScriptedSet, daemon: Make) -> None:
    failing = scripted.fail("aggregate", times=None, code=11600)
    run = daemon(scripted.uri).start(ready=False)
    until(lambda: run.logged("service.starting"), "the start")
    run.port = run.logged("service.starting")[0]["http_port"]
    until(lambda: run.status().get("state") == "backing_off", "the first failure")
    assert run.get("/readyz")[0] == 503
    assert run.get("/livez")[0] == 200
    failing.disarm()
    until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert run.status()["state"] in ("catching_up", "streaming", "caught_up")
    assert run.stop() == 0


def test_with_no_scope_left_to_follow_the_process_fails(
    scripted: ScriptedSet, daemon: Make
) -> None:
    scripted.fail("aggregate", times=None, code=13)
    run = daemon(scripted.uri).start(ready=False)
    assert run.wait() == 1
    assert run.logged("service.failed")[0]["halted"] == ["orders"]
    assert "Traceback" not in run.log


def test_a_start_time_is_used_only_until_there_is_a_checkpoint(
    scripted: ScriptedSet, daemon: Make
) -> None:
    scope = {"name": "orders", "database": "shop", "collection": "orders"}
    begin = {**scope, "max_await_time_ms": 200, "start_at": "2031-01-01T00:00:00Z"}
    run = daemon(scripted.uri, scopes=[begin]).start()
    (first, *_) = scripted.commands("aggregate")
    assert first.change_stream is not None
    assert first.change_stream["startAtOperationTime"] == Timestamp(1924992000, 0)
    until(lambda: run.status()["checkpoint"], "a checkpoint")
    assert run.stop() == 0
    scripted.clear()
    run.start()
    (again, *_) = scripted.commands("aggregate")
    assert again.change_stream is not None
    assert "startAtOperationTime" not in again.change_stream
    assert run.stop() == 0


def test_a_second_signal_forces(scripted: ScriptedSet, daemon: Make) -> None:
    handlers = {"mine": {"type": "python", "target": "hanging:handle"}}
    routes = [{"scope": "orders", "handlers": ["mine"]}]
    run = daemon(scripted.uri, handlers=handlers, routes=routes, shutdown={"grace_seconds": 600})
    (run.directory / "hanging.py").write_text(
        "import anyio\nasync def handle(event):\n    await anyio.sleep_forever()\n"
    )
    run.start()
    insert_many(scripted, 0, 1)
    until(lambda: run.status()["in_flight"]["events"], "the hanging event")
    run.signal(signal.SIGINT)
    until(lambda: run.logged("service.stopping"), "the first signal")
    run.signal(signal.SIGTERM)
    assert run.wait() == 3
