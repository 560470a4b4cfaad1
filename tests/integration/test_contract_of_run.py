"""`tailrace run`, tested only through its outside contract."""

from datetime import UTC, datetime

from tests.daemon import Make, until
from tests.orders import Orders
from tests.scripted import ScriptedSet


def test_an_operation_type_to_come_passes_through_unchanged(
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


def test_ready_only_while_every_scope_streams(orders: Orders) -> None:
    namespace = f"{orders.database}.orders"
    orders.server.fail("aggregate", "alwaysOn", errorCode=11600, namespace=namespace)
    try:
        run = orders.daemon().start(ready=False).until_answers()
        until(lambda: run.status().get("state") == "backing_off", "the first failure")
        assert run.get("/readyz")[0] == 503
        assert run.get("/livez")[0] == 200
    finally:
        orders.server.fail("aggregate", "off")
    until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert run.status()["state"] in ("catching_up", "streaming", "caught_up")
    assert run.stop() == 0


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
