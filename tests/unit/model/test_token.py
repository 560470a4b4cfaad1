"""Resume tokens are opaque bytes; of some, the time and the order can be read."""

from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ResumeToken, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.testing.tokens import event_token, high_water_token
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
