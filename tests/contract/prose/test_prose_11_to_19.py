"""Change Streams specification, prose tests 11 to 19 (10, 15 and 16 are removed): positions.

Source: mongodb/specifications, source/change-streams/tests/README.md.
"""

from typing import Any

import bson
import pytest

from tailrace.event import RawBatch
from tailrace.model import ResumeToken, StartPoint
from tailrace.stream import ChangeStreamOptions
from tailrace.stream.aggregate import request
from tests.contract.streams import (
    NS,
    ORDERS,
    after,
    at,
    behind,
    connected,
    following,
    ids,
    position,
    read,
    read_batch,
    starts,
)
from tests.scripted import RESUMABLE, ScriptedSet, high_water_token

STARTS = ["startAfter", "resumeAfter"]


def starting(kind: str, token: Any) -> StartPoint:
    document = token.document if isinstance(token, ResumeToken) else token
    return behind(document) if kind == "startAfter" else after(document)


async def first_event(scripted: ScriptedSet, name: str) -> ResumeToken:
    """Inserts documents 1 to 3; returns the token of the first event."""
    async with following(name, scripted) as stream:
        scripted.insert_many(NS, [1, 2, 3])
        events = await read(stream, 3)
    scripted.clear()
    return events[0].token


async def test_prose_11_an_empty_batch_has_the_post_batch_token(
    scripted: ScriptedSet, name: str
) -> None:
    async with following(name, scripted) as stream:
        seen = [position(stream)]
        for seconds in (0, 1, 5):
            scripted.noop(seconds)
            await stream.next_batch()
            if seconds:
                assert position(stream) == high_water_token(scripted.cluster_time)
            seen.append(position(stream))
    assert None not in seen
    assert len({str(each) for each in seen}) == 3


async def test_prose_11_a_batch_read_to_its_end_has_the_post_batch_token(
    scripted: ScriptedSet, name: str
) -> None:
    async with following(name, scripted) as stream:
        scripted.insert_many(NS, [1, 2])
        scripted.noop(3)
        batch = await read_batch(stream)
        assert ids(batch.events()) == [1, 2]
        assert position(stream) == high_water_token(scripted.cluster_time)
        assert batch.token == stream.resume_token
        assert batch.last is not None
        assert batch.last.token != batch.token


async def test_prose_12_without_post_batch_tokens_it_is_the_last_event_s(
    scripted: ScriptedSet, name: str
) -> None:
    scripted.behave(post_batch_tokens=False)
    async with following(name, scripted) as stream:
        await stream.next_batch()
        assert position(stream) is None
        tokens = scripted.insert_many(NS, [1, 2])
        await read(stream, 2)
        assert position(stream) == tokens[-1]
        await stream.next_batch()
        assert position(stream) == tokens[-1]


@pytest.mark.parametrize("kind", STARTS)
async def test_prose_12_without_post_batch_tokens_and_events_it_is_the_start_s(
    scripted: ScriptedSet, name: str, kind: str
) -> None:
    scripted.behave(post_batch_tokens=False)
    token = scripted.insert(NS, {"_id": 1})
    async with following(name, scripted, start=starting(kind, token)) as stream:
        for _ in range(2):
            assert position(stream) == token
            assert len(await stream.next_batch()) == 0
        assert position(stream) == token


async def test_prose_13_within_a_batch_it_is_the_previous_event_s(
    scripted: ScriptedSet, name: str
) -> None:
    token = await first_event(scripted, name)
    async with following(name, scripted, start=StartPoint(resume_after=token)) as stream:
        batch = await read_batch(stream)
    events = batch.events()
    assert ids(events) == [2, 3]
    assert batch.part(0, 1).last().token == events[0].token


@pytest.mark.parametrize("kind", STARTS)
async def test_prose_14_before_the_first_event_it_is_the_start_s(
    scripted: ScriptedSet, name: str, kind: str
) -> None:
    token = await first_event(scripted, name)
    async with following(name, scripted, start=starting(kind, token)) as stream:
        assert stream.resume_token == token
        assert scripted.commands("getMore") == []
        assert ids(await read(stream, 2)) == [2, 3]
        assert stream.resume_token != token


@pytest.mark.parametrize("tokens", [True, False], ids=["post-batch tokens", "none"])
async def test_prose_14_before_the_first_event_of_a_time_it_is_that_time_s_if_the_server_says_so(
    scripted: ScriptedSet, name: str, tokens: bool
) -> None:
    """The first batch is empty, so the post-batch token counts."""
    scripted.behave(post_batch_tokens=tokens)
    time = scripted.cluster_time
    scripted.insert_many(NS, [1, 2])
    async with following(name, scripted, start=at(time)) as stream:
        assert position(stream) == (high_water_token(time) if tokens else None)
        assert scripted.commands("getMore") == []
        assert ids(await read(stream, 2)) == [1, 2]


@pytest.mark.parametrize("empty_reads", [1, 2])
async def test_prose_17_started_after_a_token_and_without_events_it_starts_after_again(
    scripted: ScriptedSet, name: str, empty_reads: int
) -> None:
    async with following(name, scripted) as stream:
        scripted.insert_many(NS, [1])
        (event,) = await read(stream, 1)
    scripted.clear()
    start = StartPoint(start_after=event.token)
    async with following(name, scripted, start=start) as stream:
        for _ in range(empty_reads):
            assert len(await stream.next_batch()) == 0
        scripted.fail("getMore", code=11602, labels=[RESUMABLE])
        scripted.insert_many(NS, [2])
        assert ids(await read(stream, 1)) == [2]
    first, second = starts(scripted)
    assert first == {"startAfter": event.id}
    assert list(second) == ["startAfter"]


async def test_prose_18_started_after_a_token_and_with_events_it_resumes_after(
    scripted: ScriptedSet, name: str
) -> None:
    token = await first_event(scripted, name)
    async with following(name, scripted, start=StartPoint(start_after=token)) as stream:
        assert ids(await read(stream, 2)) == [2, 3]
        scripted.fail("getMore", code=11602, labels=[RESUMABLE])
        scripted.insert_many(NS, [4])
        assert ids(await read(stream, 1)) == [4]
    assert [list(start) for start in starts(scripted)] == [["startAfter"], ["resumeAfter"]]


SPLIT = ChangeStreamOptions(
    pipeline=({"$changeStreamSplitLargeEvent": {}},),
    full_document_before_change="required",
    max_await_time_ms=50,
)


async def fragments(scripted: ScriptedSet, name: str, parts: Any) -> list[dict[str, Any]]:
    """Event fragments as the driver returns them, before the stream joins them."""
    async with connected(name, scripted.uri) as driver:
        cursor = await (await driver.start_session()).open(request(ORDERS, SPLIT, StartPoint()))
        scripted.append_fragments(parts, namespace=NS)
        found: list[dict[str, Any]] = []
        while len(found) < len(parts):
            reply = await cursor.next_batch()
            for chunk in RawBatch(reply.buffer, reply.bounds, None).slices():
                found += [bson.decode(raw) for raw in chunk.raw()]
    return found


async def test_prose_19_a_large_event_comes_in_fragments(scripted: ScriptedSet, name: str) -> None:
    parts: list[dict[str, Any]] = [
        {"operationType": "update", "fullDocumentBeforeChange": {"value": "q" * 10_000_000}},
        {"updateDescription": {"updatedFields": {"value": "z" * 10_000_000}}},
    ]
    found = await fragments(scripted, name, parts)
    assert [event["splitEvent"] for event in found] == [
        {"fragment": 1, "of": 2},
        {"fragment": 2, "of": 2},
    ]
    (aggregate,) = scripted.commands("aggregate")
    assert aggregate.document["pipeline"][-1] == {"$changeStreamSplitLargeEvent": {}}
    assert aggregate.change_stream == {"fullDocumentBeforeChange": "required"}
