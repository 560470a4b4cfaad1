"""Which errors resume, and where a resume starts: the specification, row by row."""

import pytest
from bson.timestamp import Timestamp

from tailrace.errors import ConnectionFailed, DriverError
from tailrace.event.reply import Reply
from tailrace.model import StartPoint
from tailrace.stream.resumable import UNLABELLED_CODES, ResumePosition, is_resumable
from tests.unit.stream.fake_driver import LABEL, TIME, failure, reply, token

# Change Streams specification, "Resumable Error".
LISTED = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436, 63, 150, 13388, 234, 133]
OTHERS = [0, 1, 2, 13, 18, 26, 50, 59, 136, 222, 237, 260, 280, 286, 10334, 11601, 40573, 50811]
A, B, C = token("a"), token("b"), token("c")
EARLIER = Timestamp(5, 6)


def test_the_list_is_the_specification_s() -> None:
    assert set(LISTED) == UNLABELLED_CODES


@pytest.mark.parametrize("code", [*LISTED, *OTHERS])
@pytest.mark.parametrize("wire_version", [9, 25])
def test_newer_servers_say_it_by_a_label(code: int, wire_version: int) -> None:
    assert is_resumable(failure(code, LABEL, "other", wire_version=wire_version))
    assert not is_resumable(failure(code, wire_version=wire_version))
    assert not is_resumable(failure(code, "RetryableWriteError", wire_version=wire_version))


@pytest.mark.parametrize("code", [*LISTED, *OTHERS])
@pytest.mark.parametrize("wire_version", [6, 8])
def test_older_servers_say_it_by_a_code(code: int, wire_version: int) -> None:
    expected = code in LISTED
    assert is_resumable(failure(code, wire_version=wire_version)) is expected
    assert is_resumable(failure(code, LABEL, wire_version=wire_version)) is expected


def test_what_is_not_the_server_s_answer_resumes_and_so_does_a_lost_cursor() -> None:
    for wire_version in (0, 8, 9, 21):
        assert is_resumable(failure(43, wire_version=wire_version))
    assert is_resumable(ConnectionFailed("AutoReconnect: connection closed"))
    assert is_resumable(DriverError("of a kind yet unknown"))


@pytest.mark.parametrize(
    "start",
    [StartPoint(), StartPoint(at_operation_time=TIME), StartPoint(resume_after=A)],
    ids=str,
)
def test_a_cached_token_comes_before_everything_else(start: StartPoint) -> None:
    position = ResumePosition(start)
    assert position.resume_point == start
    position.advance(B)
    assert position.resume_point == StartPoint(resume_after=B)
    position.advance(C, events=1)
    assert position.resume_point == StartPoint(resume_after=C)


def test_start_after_stays_until_an_event_has_been_returned() -> None:
    position = ResumePosition(StartPoint(start_after=A))
    assert position.resume_point == StartPoint(start_after=A)
    position.advance(B)
    assert position.resume_point == StartPoint(start_after=B)
    position.advance(None)
    assert position.resume_point == StartPoint(start_after=B)
    position.advance(C, events=1)
    assert position.resume_point == StartPoint(resume_after=C)
    position.advance(B)
    assert position.resume_point == StartPoint(resume_after=B)


def test_the_operation_time_of_the_first_reply_is_kept_where_nothing_else_is_known() -> None:
    position = ResumePosition(StartPoint())
    position.opened(reply(time=TIME))
    assert position.resume_point == StartPoint(at_operation_time=TIME)
    position.advance(A, events=1)
    assert position.resume_point == StartPoint(resume_after=A)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (StartPoint(resume_after=A), reply()),
        (StartPoint(start_after=A), reply()),
        (StartPoint(at_operation_time=EARLIER), reply()),
        (StartPoint(), reply("a")),
        (StartPoint(), reply(post_batch="b")),
    ],
    ids=["resumeAfter", "startAfter", "a time", "events", "a post-batch token"],
)
def test_the_operation_time_is_not_kept_otherwise(start: StartPoint, first: Reply) -> None:
    position = ResumePosition(start)
    position.opened(first)
    assert position.operation_time is None
    assert position.resume_point == start
