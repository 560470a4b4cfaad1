"""Reading from an offset to the next without Spark: what is taken, and what is read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.direct.follower import Follower, Taken
from tailrace.direct.offset import Offset
from tailrace.direct.options import following
from tailrace.direct.source import ChangeStreamReader
from tailrace.errors import CheckpointCorrupt, ScopeHalted, StartRefused, StreamError
from tailrace.event import Batch
from tailrace.event.batch import of_documents
from tailrace.model import ResumeToken, StartPoint
from tailrace.stream import ChangeStream
from tests.scripted import Command, ScriptedSet

BEGINNING = Offset(0, StartPoint())


def options(server: ScriptedSet, **more: Any) -> dict[str, str]:
    given = {"database": "shop", "collection": "orders", "maxAwaitTimeMS": 100, **more}
    return {"uri": server.uri, **{name: str(value) for name, value in given.items()}}


def follower(server: ScriptedSet, **more: Any) -> Follower:
    return Follower(following(options(server, **more)))


def ids(events: list[bytes]) -> list[Any]:
    return [bson.decode(event).get("documentKey", {}).get("_id") for event in events]


def all_of(one: Follower, start: Offset, until: Timestamp | None = None) -> Iterator[Taken]:
    """What one trigger after the other takes, until one finds nothing."""
    while True:
        taken = one.take(start, until)
        if not taken.events:
            return
        yield taken
        start = taken.end


@pytest.fixture
def begun(scripted: ScriptedSet) -> Offset:
    """The offset behind the empty first batch of a query that begins now."""
    scripted.insert("shop.orders", {"_id": "before"})
    taken = follower(scripted).take(BEGINNING)
    assert taken.events == []
    return taken.end


def test_now_is_where_the_first_batch_ends(scripted: ScriptedSet, begun: Offset) -> None:
    scripted.insert("shop.orders", {"_id": "after"})
    (taken,) = all_of(follower(scripted), begun)
    assert ids(taken.events) == ["after"]
    assert follower(scripted).again(BEGINNING, begun) == []


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_trigger_takes_its_share_of_events(
    scripted: ScriptedSet, begun: Offset, driver: str
) -> None:
    scripted.insert_many("shop.orders", range(7))
    scripted.insert("shop.other")
    one = follower(scripted, maxEventsPerTrigger=3, driver=driver)
    batches = list(all_of(one, begun))
    assert [ids(taken.events) for taken in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [taken.end.ordinal for taken in batches] == [3, 6, 7]


def test_a_trigger_takes_its_share_of_bytes_and_one_event_at_least(
    scripted: ScriptedSet, begun: Offset
) -> None:
    scripted.insert("shop.orders", {"_id": 0, "text": "x" * 5000})
    for key in range(1, 6):
        scripted.insert("shop.orders", {"_id": key, "text": "x" * 400})
    batches = list(all_of(follower(scripted, maxBytesPerTrigger=1700), begun))
    assert [ids(taken.events) for taken in batches] == [[0], [1, 2], [3, 4], [5]]


def test_what_is_read_again_is_the_same(scripted: ScriptedSet, begun: Offset) -> None:
    scripted.insert_many("shop.orders", range(5))
    one = follower(scripted, maxEventsPerTrigger=2)
    batches = list(all_of(one, begun))
    scripted.insert_many("shop.orders", range(5, 9))  # nothing of what came since
    starts = [begun, *(taken.end for taken in batches)]
    for start, taken in zip(starts, batches, strict=False):
        record = Offset.from_record(taken.end.to_record())
        assert follower(scripted).again(start, record) == taken.events
    assert follower(scripted).again(begun, batches[-1].end) == [
        event for taken in batches for event in taken.events
    ], "several batches are one range as well"


def test_what_cannot_be_read_again_is_an_error(scripted: ScriptedSet, begun: Offset) -> None:
    scripted.insert_many("shop.orders", range(3))
    (taken,) = all_of(follower(scripted), begun)
    for wrong in (replace(taken.end, event="else"), replace(taken.end, ordinal=4)):
        with pytest.raises(ScopeHalted, match=r"cannot be read again.*another checkpointLocation"):
            follower(scripted).again(begun, wrong)


def test_nothing_after_the_time_that_was_asked_for(scripted: ScriptedSet, begun: Offset) -> None:
    scripted.insert_many("shop.orders", range(3))
    one = follower(scripted)
    until = one.now()
    later = Timestamp(until.time + 10, 1)
    scripted.append(
        {
            "operationType": "insert",
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": "later"},
            "fullDocument": {"_id": "later"},
            "clusterTime": later,
        }
    )
    taken = one.take(begun, until)
    assert ids(taken.events) == [0, 1, 2]
    assert taken.reached
    assert ids(one.take(taken.end).events) == ["later"]


def test_nothing_up_to_the_time_that_was_asked_for(scripted: ScriptedSet, begun: Offset) -> None:
    scripted.insert("shop.other")
    one = follower(scripted)
    taken = one.take(begun, one.now())
    assert (taken.events, taken.reached) == ([], True)


def test_a_position_never_goes_back(scripted: ScriptedSet, begun: Offset) -> None:
    """The post-batch token of a stream that begins later may lie before its beginning."""
    assert begun.start.token is not None
    time = begun.start.token.cluster_time
    assert time is not None
    start = Offset(0, StartPoint(at_operation_time=Timestamp(time.time + 60, 0)))
    early = of_documents([], begun.start.token)

    async def reply(_: object) -> Batch:
        return early

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangeStream, "next_batch", reply)
        taken = follower(scripted).take(start)
    assert taken.end.start == start.start


def test_a_start_at_a_time(scripted: ScriptedSet) -> None:
    scripted.insert("shop.orders", {"_id": 0})
    time = follower(scripted).now()
    start = Offset(0, StartPoint(at_operation_time=Timestamp(time.time + 5, 0)))
    assert follower(scripted).take(start).events == []
    early = Offset(0, StartPoint(at_operation_time=time))
    (taken,) = all_of(follower(scripted), early)
    assert ids(taken.events) == [0]
    assert follower(scripted).again(early, taken.end) == taken.events


def test_an_invalidate_ends_a_batch_and_the_next_begins_after_it(
    scripted: ScriptedSet, begun: Offset
) -> None:
    scripted.insert("shop.orders", {"_id": 0})
    scripted.drop("shop.orders")
    scripted.insert("shop.orders", {"_id": 1})
    one = follower(scripted)
    first, second = all_of(one, begun)
    operations = [bson.decode(event)["operationType"] for event in first.events]
    assert operations == ["insert", "drop", "invalidate"]
    assert first.end.invalidated
    assert ids(second.events) == [1]
    assert not second.end.invalidated
    assert one.again(begun, first.end) == first.events
    with pytest.raises(ScopeHalted, match="cannot be read again"):
        one.again(begun, second.end)  # never one batch: a stream ends with its invalidate
    stopping = follower(scripted, onInvalidate="stop")
    assert stopping.take(first.end) == Taken([], first.end, reached=True)


def test_an_invalidate_after_the_time_that_was_asked_for(
    scripted: ScriptedSet, begun: Offset
) -> None:
    scripted.insert("shop.orders", {"_id": 0})
    one = follower(scripted)
    until = one.now()
    scripted.drop("shop.orders")
    taken = one.take(begun, until)
    assert (ids(taken.events), taken.reached, taken.end.invalidated) == ([0], True, False)
    assert one.take(taken.end, until) == Taken([], taken.end, reached=True)


def test_split_events_are_joined(scripted: ScriptedSet, begun: Offset) -> None:
    one = follower(scripted, splitLargeEvents="true", maxEventsPerTrigger=1)
    scripted.append_fragments(
        [
            {"operationType": "insert", "documentKey": {"_id": 0}},
            {"wallTime": datetime(2024, 5, 1, tzinfo=UTC)},
            {"fullDocument": {"_id": 0, "large": "x"}},
        ],
        namespace="shop.orders",
    )
    start = replace(begun, fingerprint="")
    (taken,) = all_of(one, start)
    assert [bson.decode(event)["fullDocument"]["large"] for event in taken.events] == ["x"]
    assert one.again(start, taken.end) == taken.events


def test_a_resumable_error_is_resumed(scripted: ScriptedSet, begun: Offset) -> None:
    scripted.insert_many("shop.orders", range(4))
    scripted.fail("getMore", code=43)
    taken = follower(scripted, batchSize=2).take(begun)
    assert ids(taken.events) == [0, 1, 2, 3]


def test_an_idle_stream_moves_on_by_the_post_batch_token(
    scripted: ScriptedSet, begun: Offset
) -> None:
    impatient = ChangeStreamReader(following(options(scripted, idleSeconds=0)))
    patient = ChangeStreamReader(following(options(scripted)))
    scripted.insert("shop.other")
    scripted.noop()
    start = begun.to_record()
    rows, end = patient.read(start)
    assert (list(rows), end) == ([], start)
    rows, end = impatient.read(start)
    assert list(rows) == []
    moved = Offset.from_record(end)
    assert moved.ordinal == begun.ordinal
    assert begun.start.token is not None
    assert moved.start.token is not None
    assert begun.start.token.precedes(moved.start.token)
    rows, again = impatient.read(end)
    assert (list(rows), again) == ([], end)


def test_a_long_look_for_events_is_not_begun_anew(
    begun: Offset, scripted: ScriptedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty reply before the end: the server looks through an oplog that others fill."""
    further = replace(begun, start=StartPoint(start_after=ResumeToken.of({"_data": "83"})))
    monkeypatch.setattr(Follower, "take", lambda *_: Taken([], further, reached=False))
    _, end = ChangeStreamReader(following(options(scripted))).read(begun.to_record())
    assert Offset.from_record(end) == further


def test_the_first_offset_is_a_constant(scripted: ScriptedSet) -> None:
    """Spark asks for it in every process until the first batch is done, and stores it nowhere."""
    reader = ChangeStreamReader(following(options(scripted)))
    assert Offset.from_record(reader.initialOffset()) == BEGINNING
    assert scripted.commands("aggregate") == []


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["aggregate", "getMore"])
def test_a_lost_history_is_told_with_what_to_do(
    scripted: ScriptedSet, begun: Offset, where: str
) -> None:
    scripted.noop()
    scripted.insert("shop.orders")
    scripted.noop()
    scripted.truncate_oplog()
    scripted.behave(history_lost_on=where)
    with pytest.raises(ScopeHalted) as halted:
        follower(scripted).take(begun)
    text = str(halted.value)
    assert text.startswith("scope 'direct' (shop.orders): the server cannot begin with startAfter")
    assert "code 286" in text
    assert "another checkpointLocation" in text


def test_a_privilege_that_is_missing(scripted: ScriptedSet) -> None:
    scripted.fail("aggregate", code=13)
    with pytest.raises(ScopeHalted, match=r"'direct' \(shop.orders\): .*lacks the privilege"):
        follower(scripted).take(BEGINNING)


def test_a_failure_that_may_pass(scripted: ScriptedSet) -> None:
    scripted.fail("aggregate", code=11602)
    with pytest.raises(StreamError, match=r"\(shop.orders\): .*Start the query again"):
        follower(scripted).take(BEGINNING)


def test_an_unreachable_server() -> None:
    dead = following({"uri": "mongodb://127.0.0.1:1/", "connectTimeoutSeconds": "0.2"})
    with pytest.raises(StartRefused, match=r"scope 'direct' \(cluster\): .*127.0.0.1:1"):
        Follower(dead).take(BEGINNING)


def test_another_pipeline_than_the_checkpoints(scripted: ScriptedSet, begun: Offset) -> None:
    other = follower(scripted, pipeline='[{"$match": {}}]')
    with pytest.raises(ScopeHalted, match="pipeline or options changed since the query's"):
        other.take(begun)


def test_another_cluster_than_the_checkpoints(scripted: ScriptedSet, begun: Offset) -> None:
    with ScriptedSet() as other, pytest.raises(ScopeHalted, match="belongs to the cluster"):
        follower(other).take(begun)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"ordinal": -1},
        {"ordinal": True},
        {"token": "{"},
        {"time": [1]},
        {"event": None},
        {"cluster": 1},
    ],
)
def test_an_offset_of_something_else(begun: Offset, change: dict[str, Any]) -> None:
    record = {**begun.to_record(), **change}
    with pytest.raises(CheckpointCorrupt, match="checkpointLocation that of another query"):
        Offset.from_record(record)
    with pytest.raises(CheckpointCorrupt):
        Offset.from_record({"offset": 1})


def test_a_token_that_the_server_refuses(scripted: ScriptedSet, begun: Offset) -> None:
    """Sending it again could never succeed."""

    def refuse(command: Command) -> dict[str, Any] | None:
        if "startAfter" in (command.change_stream or {}):
            return {"ok": 0, "code": 260, "codeName": "InvalidResumeToken", "errmsg": "no"}
        return None

    scripted.on_command(refuse)
    wrong = replace(begun, start=StartPoint(start_after=ResumeToken.of({"_data": "82"})))
    with pytest.raises(ScopeHalted, match="code 260"):
        follower(scripted).take(wrong)
