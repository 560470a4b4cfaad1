"""Spans of a daemon as a collector receives them, and a collector that is away."""

import json

from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.daemon import until
from tests.machine import free_port
from tests.orders import Orders
from tests.otlp import collecting, values

ERROR = Status.STATUS_CODE_ERROR
SECRET = "plain-value-4711"
SOURCE = """
import logging

async def handle(events):
    logging.getLogger("mine").warning("handled %s", len(events))
    if any((event.full_document or {}).get("fails") for event in events):
        raise ValueError(f"cannot take {events[0].full_document}")
"""


def test_a_collector_receives_the_spans_of_replies_calls_saves_look_ups_and_chunks(
    orders: Orders,
) -> None:
    with collecting() as collector:
        run = orders.daemon(
            scope={"full_document": "lookup", "snapshot": "initial"},
            source=SOURCE,
            handlers={"mine": {"type": "python", "target": "mine:handle"}},
            routes=[{"scope": "orders", "handlers": ["mine"]}],
            delivery={"on_failure": "dead_letter", "retry": {"attempts": 1}},
            telemetry={
                "endpoint": collector.url,
                "headers": {"authorization": {"file": "token"}},
                "resource": {"deployment.environment.name": "test"},
            },
        )
        (run.directory / "token").write_text("Bearer of-the-collector\n")
        orders.insert(1, note=SECRET)
        run.environ = {"OTEL_SERVICE_NAME": "orders-daemon", "OTEL_BSP_SCHEDULE_DELAY": "100"}
        run.start()
        orders.insert(2, note=SECRET, fails=True)
        with orders.server.client() as client:
            client[orders.database].orders.update_one({"_id": 1}, {"$set": {"note": SECRET * 2}})
        until(lambda: "event.dead_lettered" in run.log, "the dead letter")

        def came() -> bool:
            purposes = {values(span.attributes).get("tailrace.purpose") for span in spans()}
            failed = [span for span in spans("process") if span.status.code == ERROR]
            return purposes >= {"stream", "look_up", "snapshot", "save"} and bool(failed)

        spans = collector.spans
        until(came, "the spans")
        log = run.log
        assert run.stop() == 0
    resource = values(collector.traces[0].resource.attributes)
    assert resource["service.name"] == "orders-daemon"
    assert resource["deployment.environment.name"] == "test"
    assert {each["authorization"] for each in collector.headers} == {"Bearer of-the-collector"}
    (reply, *_) = collector.spans("getMore orders")
    about = values(reply.attributes)
    assert about["db.system.name"] == "mongodb"
    assert (about["db.namespace"], about["db.collection.name"]) == (orders.database, "orders")
    assert about["db.response.returned_rows"] >= 1
    calls = collector.spans("process mine")
    of_call = values(calls[-1].attributes)
    assert of_call["messaging.destination.name"] == "orders"
    assert of_call["messaging.consumer.group.name"] == "mine"
    (failed,) = [call for call in calls if call.status.code == ERROR]
    assert values(failed.attributes)["error.type"] == "ValueError"
    assert "mine.py" in values(failed.events[0].attributes)["exception.stacktrace"]
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    handled = [line for line in lines if str(line["event"]).startswith("handled")]
    ids = {(call.trace_id.hex(), call.span_id.hex()) for call in calls}
    assert {(line["trace_id"], line["span_id"]) for line in handled} <= ids
    assert handled
    assert not any("trace_id" in line for line in lines if line["event"] == "service.started")
    assert not any(SECRET.encode() in body for body in collector.bodies)


def test_a_collector_that_is_away_is_named_once_and_stops_nothing(orders: Orders) -> None:
    port = free_port()
    run = orders.daemon(telemetry={"endpoint": f"http://127.0.0.1:{port}"})
    run.environ = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    run.start()
    away = '"event":"telemetry.not_sent"'
    orders.insert(1)
    until(lambda: away in run.log.replace(" ", ""), "the collector is away")
    orders.insert(2)
    until(lambda: len(run.events()) == 2, "both changes")
    with collecting(port) as collector:
        orders.insert(3)
        until(lambda: collector.spans("getMore"), "spans again")
        until(lambda: "telemetry.sent_again" in run.log, "the line that says so")
    orders.insert(4)
    until(lambda: len(run.events()) == 4, "all changes")
    assert run.stop() == 0
    first = run.log.split("telemetry.sent_again")[0]
    assert first.count("telemetry.not_sent") == 1
    (said,) = [line for line in first.splitlines() if "telemetry.not_sent" in line]
    assert str(port) in said
