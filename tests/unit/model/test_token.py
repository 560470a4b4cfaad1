"""Resume tokens are opaque bytes; of some, the time and the order can be read."""

from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ResumeToken, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.testing.tokens import event_token, high_water_token, invalidate_token
from tests.unit.event.documents import documents, quick, timestamps

A, B = ResumeToken.of({"_data": "82AA"}), ResumeToken.of({"_data": "82BB"})


@quick
@given(timestamps, st.integers(0, 100), st.integers(0, 1000))
def test_the_time_of_a_mongod_token_can_be_read(time: Timestamp, index: int, ordinal: int) -> None:
    event = ResumeToken.of(event_token(time, index, "shop.orders", ordinal))
    assert event.cluster_time == ResumeToken.of(high_water_token(time)).cluster_time == time


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"_data": "8165A0B0C000000001"},
        {"_data": "8265A0B0C00000000G"},
        {"_data": b"\x82" * 20},
        {"_data": None},
    ],
    ids=str,
)
def test_a_token_of_another_make_has_no_time_and_no_order(document: dict[str, Any]) -> None:
    token = ResumeToken.of(document)
    known = ResumeToken.of({"_data": "8265A0B0C000000001"})
    assert token.cluster_time is None
    assert not token.precedes(known)
    assert not known.precedes(token)


@pytest.mark.parametrize(
    "raw", [b"", b"junk", bson.encode({"_data": "abc"}).replace(b"abc", b"a\xffc")]
)
def test_bytes_that_are_no_document_have_no_time_and_no_order(raw: bytes) -> None:
    token = ResumeToken(raw)
    assert token.cluster_time is None
    assert not token.precedes(A)
    assert len(token.digest) == 12


@quick
@given(timestamps, timestamps)
def test_tokens_precede_by_time(one: Timestamp, other: Timestamp) -> None:
    earlier, later = (ResumeToken.of(high_water_token(time)) for time in (one, other))
    assert earlier.precedes(later) is (one < other)
    assert later.precedes(earlier) is (other < one)


@quick
@given(documents)
def test_text_and_bytes_keep_a_token_exactly(document: dict[str, Any]) -> None:
    raw = bson.encode(document)
    token = ResumeToken(raw)
    assert token.wire.raw == raw
    assert bson.encode({"resumeAfter": token.wire}) == bson.encode({"resumeAfter": token.wire})
    assert raw in bson.encode({"resumeAfter": token.wire})


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (StartPoint(), "now"),
        (StartPoint(start_after=A), f"startAfter {A.digest}"),
        (StartPoint(resume_after=A), f"resumeAfter {A.digest}"),
        (StartPoint(at_operation_time=Timestamp(1, 2)), "startAtOperationTime 1.2"),
    ],
)
def test_a_start_point_says_what_it_is(start: StartPoint, text: str) -> None:
    assert str(start) == text


@pytest.mark.parametrize(
    ("one", "other", "may_be"),
    [
        (("rs0", "a"), ("rs0", "a"), True),
        (("rs0", "a"), ("rs0", "b"), False),
        (("rs0", "a"), ("renamed", "a"), True),
        (("rs0", ""), ("rs0", "a"), True),
        (("rs0", ""), ("rs1", ""), False),
        (("rs0", "a"), ("rs1", ""), False),
    ],
)
def test_clusters_are_the_same_by_id_where_both_are_known(
    one: tuple[str, str], other: tuple[str, str], may_be: bool
) -> None:
    assert ClusterIdentity(*one).may_be(ClusterIdentity(*other)) is may_be
    assert ClusterIdentity(*other).may_be(ClusterIdentity(*one)) is may_be


@pytest.mark.parametrize("identity", [("rs0", "a1"), ("rs0", ""), ("a/b", "c"), ("", "")])
def test_an_identity_is_read_back_from_its_text(identity: tuple[str, str]) -> None:
    cluster = ClusterIdentity(*identity)
    assert ClusterIdentity.parse(str(cluster)) == cluster


def of_version(version: int, data: str) -> ResumeToken:
    return ResumeToken.of({"_data": data.replace("2B04", f"2B0{2 * version}", 1)})


def test_tokens_of_two_versions_are_compared_by_their_place() -> None:
    """An upgrade of the server changes their format: not all of one time sort by their text."""
    time = Timestamp(1_764_500_000, 7)
    events = [event_token(time, index, "shop.orders", 9 - index)["_data"] for index in range(3)]
    invalidate = invalidate_token({"_data": events[2]})["_data"]
    texts = [high_water_token(time)["_data"], *events, invalidate]
    for at, one in enumerate(texts):
        for place, other in enumerate(texts):
            older, newer = of_version(1, one), of_version(2, other)
            assert older.precedes(newer) is (at < place)
            assert newer.precedes(older) is (place < at)
            assert older.is_at(newer) is newer.is_at(older) is (at == place)


def test_tokens_of_real_servers_of_two_versions_are_of_one_place() -> None:
    """As mongod 5.0 and 6.0 make them for one insert (``ResumeToken``, v1 and v2)."""
    time, uuid, key = "8265A0B0C000000001", "5A1004" + "AB" * 16, "645F69640029"
    before = ResumeToken.of({"_data": f"{time}2B022C0100296E{uuid}46{key}0004"})
    named = "463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B65790046"
    after = ResumeToken.of({"_data": f"{time}2B042C0100296E{uuid}{named}{key}000004"})
    other = ResumeToken.of({"_data": f"{time}2B042C0100296E{uuid}{named}645F6964002B02000004"})
    assert before.is_at(after)
    assert after.is_at(before)
    assert not before.is_at(other)  # of another shard, at the same time
    assert not before.precedes(after)
    assert not after.precedes(before)
    assert before.is_at(before)
    assert not before.is_at(None)
