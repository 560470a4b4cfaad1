"""The stream as a state machine: what it returns, where it stands, how it ends."""

from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, MissingResumeToken, ServerUnsuitable, StreamEnded
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.stream.resumable import reason
from tests.unit.stream.fake_driver import (
    NETWORK,
    SCOPE,
    TIME,
    FakeDriver,
    event,
    failure,
    reply,
    token,
    tokens,
)


def position(stream: ChangeStream) -> str | None:
    return None if stream.resume_token is None else stream.resume_token.document["_data"]


async def test_it_resumes_after_each_resumable_error_with_the_position_only() -> None:
    driver = FakeDriver(
        [reply(post_batch="p0"), reply(post_batch="a"), reply(post_batch="p9")],
        [
            *(reply("a", post_batch="a"), NETWORK, reply(post_batch="p9"), failure(43)),
            reply("b", post_batch="p10"),
        ],
    )
    async with ChangeStream(driver, SCOPE) as stream:
        seen = [tokens((await stream.next_batch()).events()) for _ in range(4)]
    assert seen == [[], ["a"], [], ["b"]]
    assert driver.starts == [{}, {"resumeAfter": "a"}, {"resumeAfter": "p9"}]
    assert [request.get_more for request in driver.requests] == [{}] * 3
    (session,) = driver.sessions
    assert (session.opened, session.closed) == (3, True)
    assert driver.kills == 3
    assert stream.activity.resumes == {"network": 1, "43": 1}
    assert len(stream.activity.errors.documents()) == 2


async def test_within_a_split_event_another_stream_continues_before_it() -> None:
    """Its own resume continues with the next fragment."""
    parts = [{"splitEvent": {"fragment": number, "of": 2}, "ns": {}} for number in (1, 2)]
    driver = FakeDriver(
        [reply(post_batch="p0"), reply(post_batch="c1")],
        [
            reply("a", post_batch="a"),
            reply("b", {"_id": {"_data": "c1"}, **parts[0]}, post_batch="c1"),
            NETWORK,
            reply({"_id": {"_data": "c2"}, **parts[1]}, post_batch="c2"),
        ],
    )
    options = ChangeStreamOptions(split_large_events=True)
    async with ChangeStream(driver, SCOPE, options) as stream:
        seen = []
        for _ in range(4):
            events = tokens((await stream.next_batch()).events())
            seen.append((events, position(stream)))
    assert seen == [([], "p0"), (["a"], "a"), (["b"], "b"), (["c2"], "c2")]
    assert driver.starts == [{}, {"resumeAfter": "c1"}]


async def test_reads_of_an_idle_stream_wait_longer_until_a_change_comes() -> None:
    driver = FakeDriver([reply()], [*[reply(post_batch="p")] * 6, reply("a"), reply()])
    options = ChangeStreamOptions(max_await_time_ms=1000, idle_await_ms=4000)
    async with ChangeStream(driver, SCOPE, options) as stream:
        waits = []
        for _ in range(9):  # the first reply is the aggregate's
            await stream.next_batch()
            waits.append(stream.activity.await_seconds)
    assert driver.waits == [*[None] * 5, 4000, 4000, None]
    assert waits[1:] == [*[1.0] * 5, 4.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("batch_size", "asked"), [(None, [500, 500, 20, 20, 1]), (10, [10, 10, 10, 10, 1])]
)
async def test_replies_are_about_as_large_as_the_reader_wants(
    batch_size: int | None, asked: list[int]
) -> None:
    """So the memory of a process does not depend on how far its streams are behind."""
    small, large = reply("a"), reply(event("b", text="b" * 2000))
    wanted = 20 * (small.bounds[-1] - small.bounds[0])
    driver = FakeDriver([reply()], [reply(), small, reply(), large, reply()])
    options = ChangeStreamOptions(batch_size=batch_size)
    stream = ChangeStream(driver, SCOPE, options, reply_bytes=wanted)
    await stream.open()
    for _ in range(6):  # the first reply is the aggregate's
        await stream.next_batch()
    assert driver.most == asked


async def test_events_that_an_aggregate_brings_unasked_are_not_lost() -> None:
    driver = FakeDriver([reply(), reply("a", "b")], [NETWORK, reply("c")])
    async with ChangeStream(driver, SCOPE) as stream:
        seen = [tokens((await stream.next_batch()).events()) for _ in range(3)]
    assert seen == [[], ["a", "b"], ["c"]]


async def test_the_position_of_a_resume_s_own_reply_counts_and_is_no_reply_of_the_stream() -> None:
    driver = FakeDriver([reply(), reply(post_batch="p")], [NETWORK, NETWORK])
    driver.aggregates.append(reply(post_batch="p"))
    driver.get_mores.append(reply("a", post_batch="q"))
    async with ChangeStream(driver, SCOPE) as stream:
        await stream.next_batch()
        assert tokens((await stream.next_batch()).events()) == ["a"]
    assert driver.starts[1:] == [{"startAtOperationTime": TIME}, {"resumeAfter": "p"}]


async def test_the_token_of_an_empty_reply_never_moves_the_position_back() -> None:
    """MongoDB 9.0 may send one that is older than the event resumed from (SERVER-135099)."""
    older, event, newer = (f"826500000{n}000000012B04" for n in range(3))
    driver = FakeDriver(
        [reply(post_batch=older), reply(post_batch=older)],
        [reply(post_batch=older), NETWORK, reply(post_batch=older), reply(post_batch=newer)],
    )
    start = StartPoint(resume_after=token(event))
    async with ChangeStream(driver, SCOPE, start=start) as stream:
        places = [(await stream.next_batch()).token for _ in range(4)]
    assert places == [token(event), token(event), token(event), token(newer)]
    assert driver.starts == [{"resumeAfter": event}, {"resumeAfter": event}]


async def test_a_resume_whose_cursor_is_closed_at_once_is_over() -> None:
    driver = FakeDriver([reply(), reply(closed=True)], [NETWORK])
    async with ChangeStream(driver, SCOPE) as stream:
        await stream.next_batch()
        with pytest.raises(StreamEnded):
            await stream.next_batch()


async def test_a_cursor_whose_server_no_longer_suits_is_left_and_another_opened() -> None:
    moved = ServerUnsuitable("a:1 is RSSecondary now")
    start = StartPoint(start_after=token("start"))
    driver = FakeDriver([reply(post_batch="start")] * 2, [moved, reply("a")])
    async with ChangeStream(driver, SCOPE, start=start) as stream:
        await stream.next_batch()
        assert tokens((await stream.next_batch()).events()) == ["a"]
    assert driver.starts == [{"startAfter": "start"}] * 2
    assert stream.activity.resumes == {"read_preference": 1}
    assert reason(moved) == "read_preference"


async def test_its_activity_says_whether_the_server_searches_or_is_looked_for() -> None:
    driver = FakeDriver([reply(), failure(13)], [reply(), NETWORK])
    async with ChangeStream(driver, SCOPE) as stream:
        activity = stream.activity
        assert (activity.searching, activity.resuming) == (True, "")
        await stream.next_batch()
        await stream.next_batch()
        assert (activity.searching, activity.heard is not None) == (False, True)
        assert driver.at_work is not None
        driver.at_work(TIME)
        assert (activity.searching, activity.server_time) == (True, TIME)
        with pytest.raises(CommandFailed):
            await stream.next_batch()
        assert (activity.searching, activity.resuming) == (False, str(NETWORK))
    assert (activity.searching, activity.resuming) == (False, "")


async def test_only_the_first_aggregate_s_operation_time_counts() -> None:
    later = Timestamp(TIME.time + 99, 1)
    driver = FakeDriver(
        [reply(), reply(time=later), reply(time=later)], [NETWORK, NETWORK, reply(time=later)]
    )
    async with ChangeStream(driver, SCOPE) as stream:
        for _ in range(2):
            await stream.next_batch()
    assert driver.starts == [{}, *[{"startAtOperationTime": TIME}] * 2]


@pytest.mark.parametrize(
    "last", [[], ["a"], [event("a", "drop")], [{"_id": {"_data": "a"}}]], ids=str
)
async def test_a_closed_cursor_is_an_invalidate_whatever_the_pipeline_makes_of_it(
    last: list[Any],
) -> None:
    """The server closes a cursor without an error for nothing else, and says where that was."""
    driver = FakeDriver([reply()], [reply(*last, post_batch="p", closed=True)])
    async with ChangeStream(driver, SCOPE) as stream:
        assert [len(await stream.next_batch()) for _ in range(2)] == [0, len(last)]
        assert stream.invalidated
        assert position(stream) == "p"


async def test_an_end_without_an_invalidate_is_an_error_after_its_events() -> None:
    driver = FakeDriver([reply()], [reply("a", closed=True)])
    async with ChangeStream(driver, SCOPE) as stream:
        await stream.next_batch()
        assert len(await stream.next_batch()) == 1
        with pytest.raises(StreamEnded, match="without an invalidate"):
            await stream.next_batch()
        assert not stream.invalidated
    assert driver.kills == 0


async def test_an_empty_end_is_an_error_at_once() -> None:
    async with ChangeStream(FakeDriver([reply(closed=True)]), SCOPE) as stream:
        with pytest.raises(StreamEnded, match="scope 'orders'"):
            await stream.next_batch()


async def test_events_before_one_without_a_token_are_returned_first() -> None:
    nameless = {"operationType": "insert", "n": 1}
    driver = FakeDriver([reply()], [reply("a", "b", nameless, "c", post_batch="p")])
    async with ChangeStream(driver, SCOPE) as stream:
        await stream.next_batch()
        batch = await stream.next_batch()
        assert tokens(batch.events()) == ["a", "b"]
        assert position(stream) == "b"
        with pytest.raises(MissingResumeToken, match="resume token is missing"):
            await stream.next_batch()
    assert driver.kills == 1


@pytest.mark.parametrize("first", [{"n": 1}, {"_id": 7}, {"n": 1, "_id": "text"}], ids=str)
async def test_a_first_event_without_a_token_is_an_error_at_once(first: dict[str, int]) -> None:
    driver = FakeDriver([reply(first, "a", post_batch="p")])
    async with ChangeStream(driver, SCOPE, start=StartPoint(token("start"))) as stream:
        with pytest.raises(MissingResumeToken):
            await stream.next_batch()
        assert position(stream) == "start"
    assert driver.kills == 1


async def test_closing_twice_is_closing_once() -> None:
    driver = FakeDriver([reply()])
    stream = ChangeStream(driver, SCOPE)
    await stream.open()
    await stream.aclose()
    await stream.aclose()
    assert (driver.kills, driver.sessions[0].closed) == (1, True)
    with pytest.raises(StreamEnded):
        await stream.next_batch()
