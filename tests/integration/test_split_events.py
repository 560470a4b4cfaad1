"""Split events: joined across replies, resumes and restarts; no position is inside one."""

import json
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.scripted import RESUMABLE, ScriptedSet

PARTS: list[dict[str, Any]] = [
    {"operationType": "update", "ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": 1}},
    {"fullDocument": {"_id": 1, "text": "after"}},
    {"fullDocumentBeforeChange": {"_id": 1, "text": "before"}},
]


@pytest.fixture
def run(scripted: ScriptedSet, daemon: Make) -> Daemon:
    scope = {"name": "orders", "database": "shop", "collection": "orders"}
    more = {"max_await_time_ms": 200, "split_large_events": True, "batch_size": 1}
    return daemon(scripted.uri, scopes=[{**scope, **more}])


def check_whole(event: dict[str, Any], token: Any) -> None:
    assert event["operationType"] == "update"
    assert event["fullDocument"]["text"] == "after"
    assert event["fullDocumentBeforeChange"]["text"] == "before"
    assert "splitEvent" not in event
    assert event["_id"] == token


def test_a_resume_between_fragments_goes_on_with_the_next_one(
    scripted: ScriptedSet, run: Daemon
) -> None:
    run.start()
    scripted.fail("getMore", skip=2, code=11602, labels=[RESUMABLE])
    tokens = scripted.append_fragments(PARTS, namespace="shop.orders")
    (event,) = run.until_events(1)
    until(lambda: run.status()["resumes"] == 1, "the resume")
    check_whole(event, tokens[-1])
    assert run.stop() == 0
    assert run.ids() == [1]


def test_a_crash_between_fragments_begins_the_event_again(
    scripted: ScriptedSet, run: Daemon
) -> None:
    run.start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    until(lambda: run.status()["checkpoint"], "a checkpoint")
    held = scripted.fail("getMore", skip=3, times=None, code=11602, labels=[RESUMABLE])
    tokens = scripted.append_fragments(PARTS, namespace="shop.orders")
    until(lambda: held.hits, "the fault between the fragments")
    run.kill()
    held.disarm()
    run.start()
    until(lambda: 1 in run.ids(), "the split event")
    check_whole(run.events()[-1], tokens[-1])
    assert run.stop() == 0
    assert list(dict.fromkeys(run.ids())) == [0, 1]


def test_an_event_is_masked_as_a_whole(scripted: ScriptedSet, run: Daemon) -> None:
    run.configuration["handlers"]["file"]["fields"] = {"mask": {"text": "***"}}
    run.start()
    parts = [{"updateDescription": {"updatedFields": {"text": "after"}, "removedFields": []}}]
    scripted.append_fragments([*PARTS, *parts], namespace="shop.orders")
    (event,) = run.until_events(1)
    assert event["fullDocument"]["text"] == event["fullDocumentBeforeChange"]["text"] == "***"
    assert event["updateDescription"]["updatedFields"] == {"text": "***"}
    assert run.stop() == 0


def test_a_position_inside_an_event_is_gone_back_from(scripted: ScriptedSet, run: Daemon) -> None:
    run.start()
    tokens = scripted.append_fragments(PARTS, namespace="shop.orders")
    run.until_events(1)
    assert run.stop() == 0
    (run.directory / "events.jsonl").unlink()
    run.command("scopes", "seek", "orders", "--token", json.dumps(tokens[0]))
    run.start()
    (event,) = run.until_events(1)
    check_whole(event, tokens[-1])
    assert run.stop() == 0
