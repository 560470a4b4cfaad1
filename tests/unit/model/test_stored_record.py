"""Stored checkpoints and gaps: what was written is read back, and anything else is an error."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import bson
import pytest
from bson.dbref import DBRef
from bson.int64 import Int64
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CheckpointCorrupt
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken, StartPoint
from tailrace.model.desired_state import DesiredHandler, DesiredState
from tailrace.model.gap import Gap
from tailrace.model.position import Reread
from tailrace.model.snapshot import DocumentId, SnapshotRequest
from tailrace.model.stored_record import StoredRecord
from tailrace.model.subscription import Subscription
from tests.unit.event.documents import scalars
from tests.unit.model.snapshots import RANGE, SNAPSHOT, snapshots

COUNTS = st.integers(0, 2**63 - 1)
TIMES = st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
# Extended JSON reserves names with $, and no server puts them into a token.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0$"), max_size=8)
VALUES = st.recursive(
    scalars.filter(lambda value: not isinstance(value, DBRef)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TOKENS = st.dictionaries(NAMES, VALUES, max_size=3).map(ResumeToken.of)
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9998, 1, 1), timezones=ZONES)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
POSITIONS = st.builds(
    Position,
    kind=st.sampled_from(PositionKind),
    event_token=st.none() | TOKENS,
    high_water=st.none() | TOKENS,
    cluster_time=st.none() | TIMES,
    stored=TEXT,
    chosen=st.booleans(),
    handled=st.frozensets(TOKENS.map(lambda token: token.digest), max_size=3),
    until=st.none() | TIMES,
    snapshot=st.none() | snapshots(TEXT, COUNTS, TIMES),
    reread=st.dictionaries(
        TEXT, st.builds(Reread, MOMENTS, since=TIMES, until=st.none() | TIMES), max_size=2
    ),
).filter(lambda position: position.start_point != StartPoint())
NAMES_OF_HANDLERS = ("audit", "lake", "Bücher ☃")
SUBSCRIPTIONS = st.builds(
    Subscription, position=POSITIONS, fingerprint=TEXT, observed_generation=COUNTS, halted=TEXT
)
CHECKPOINTS = st.builds(
    Checkpoint,
    scope=TEXT,
    position=POSITIONS,
    cluster=TEXT,
    fingerprint=TEXT,
    epoch=COUNTS,
    sequence=COUNTS,
    saved_at=MOMENTS,
    observed_generation=COUNTS,
    halted=TEXT,
    handlers=st.lists(TEXT, max_size=3).map(tuple),
    apart=st.dictionaries(TEXT, SUBSCRIPTIONS, max_size=2),
    damaged=st.just({}),
)
HANDLER_ORDERS = st.builds(
    DesiredHandler,
    paused=st.booleans(),
    seek=st.none() | POSITIONS,
    seek_generation=st.integers(0, 9),
    fingerprint=TEXT,
    set_aside=TEXT,
    snapshot=st.none() | st.builds(SnapshotRequest, id=TEXT, new=st.booleans(), filter=TEXT),
    snapshot_generation=st.integers(0, 9),
)
DESIRED_STATES = st.builds(
    DesiredState,
    scope=TEXT,
    generation=st.integers(9, 2**63 - 1),
    paused=st.booleans(),
    by=TEXT,
    at=MOMENTS,
    seek=st.none() | POSITIONS,
    seek_generation=st.integers(0, 9),
    fingerprint=TEXT,
    snapshot_generation=st.integers(0, 9),
    handlers=st.dictionaries(TEXT, HANDLER_ORDERS, max_size=3),
)
GAPS = st.builds(
    Gap,
    scope=TEXT,
    token=st.none() | TOKENS,
    since=st.none() | TIMES,
    until=st.none() | TIMES,
    reason=TEXT,
    policy=TEXT,
    recorded_at=MOMENTS,
)

CHECKPOINT = Checkpoint(
    scope="orders",
    position=Position(
        kind=PositionKind.EVENT,
        event_token=ResumeToken.of({"_data": "8265"}),
        high_water=ResumeToken.of({"_data": "8266"}),
        cluster_time=Timestamp(1_700_000_000, 3),
    ),
    cluster="5f3a",
    fingerprint="c0ffee",
    epoch=4,
    sequence=17,
    saved_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
)
GAP = Gap(
    scope="orders",
    token=ResumeToken.of({"_data": "8265"}),
    since=Timestamp(1_700_000_000, 3),
    until=Timestamp(1_700_086_400, 1),
    reason="the history is lost (code 286 ChangeStreamHistoryLost)",
    policy="skip",
    recorded_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
)
RECORDS: dict[type[StoredRecord], dict[str, Any]] = {
    Checkpoint: CHECKPOINT.to_document(),
    Gap: GAP.to_document(),
}
APART = {
    "kind": "idle",
    "event_token": None,
    "high_water": '{"_data": "8267"}',
    "cluster_time": [1_700_000_001, 1],
    "stored": "0123456789ab",
    "chosen": False,
    "handled": "0123456789abba9876543210",
    "until": [1_700_000_002, 1],
    "fingerprint": "c0ffee",
    "observed_generation": 3,
    "halted": "",
}
DEFAULTS = {"observed_generation", "halted", "stored", "chosen", "handled", "handlers"}
KIND = pytest.mark.parametrize("kind", RECORDS)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)  # which is equal to nothing
    | st.text(max_size=10)
    | st.sampled_from(["event", "idle", "invalidate", "2026-11-30T12:00:00+00:00", "{}", "[]"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
# Texts that look like Extended JSON, each with something extra in its wrapper.
WRAPPERS = [
    "$oid", "$date", "$numberLong", "$numberInt", "$numberDouble", "$numberDecimal", "$binary",
    "$timestamp", "$regularExpression", "$code", "$scope", "$uuid", "$dbPointer", "$ref", "$id",
    "$minKey", "$maxKey", "$undefined", "$symbol", "$regex", "$options", "$type",
]  # fmt: skip
EXTENDED = st.recursive(
    SCALARS | st.sampled_from(["99999999999999999999", "-1", "NaN", "1e9999", "AA==", "00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*WRAPPERS, "_data", "base64", "subType", "t", "i"]), inner
        )
    ),
    max_leaves=6,
).map(lambda value: json.dumps({"_data": value}))


def written(record: StoredRecord) -> Any:
    return json.loads(json.dumps(record.to_document()))


@given(CHECKPOINTS | GAPS | DESIRED_STATES)
def test_what_is_written_is_read_again(record: StoredRecord) -> None:
    assert type(record).from_document(written(record), where="here") == record


@KIND
@given(document=JSON)
def test_anything_else_is_corrupt(kind: type[StoredRecord], document: Any) -> None:
    with pytest.raises(CheckpointCorrupt, match=r"^here: the (checkpoint|gap record) cannot be"):
        kind.from_document(document, where="here")


@KIND
@given(damage=st.data())
def test_a_damaged_record_is_corrupt_or_still_one(kind: type[StoredRecord], damage: Any) -> None:
    fields = st.dictionaries(st.sampled_from(list(RECORDS[kind])), JSON)
    token = {"high_water" if kind is Checkpoint else "token": damage.draw(EXTENDED)}
    for damaged in (damage.draw(fields), token):
        try:
            record = kind.from_document(RECORDS[kind] | damaged, where="here")
        except CheckpointCorrupt:
            continue
        assert kind.from_document(written(record), where="here") == record


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in RECORDS for name in RECORDS[kind] if name not in DEFAULTS],
)
def test_a_missing_field_is_named(kind: type[StoredRecord], name: str) -> None:
    record = {key: value for key, value in RECORDS[kind].items() if key != name}
    with pytest.raises(CheckpointCorrupt, match=f"it lacks '{name}'"):
        kind.from_document(record, where="here")


WRONG = {
    "format": [2, True, "1"],
    "scope": [None, 5, "\ud800"],
    "kind": ["odd", []],
    "high_water": [
        *(5, "", "[]", {"_data": "8265"}, '{"_data": {"$oid": "x"}}', '{"a\\u0000b": 1}'),
        *('{"_data": {"$numberDecimal": "x"}}', '{"_data": 99999999999999999999}'),
        *('{"_data": {"$date": {"$numberLong": "99999999999999999999"}}}', '{"a":' * 100_000),
        '{"_data": "\\ud800"}',
    ],
    "cluster_time": [
        *([1], [1, 2, 3], [-1, 0], [2**32, 0], [1.5, 0], [True, 0], ["1", "2"], {"t": 1}, 5),
    ],
    "epoch": [-1, 2**63, 1.0, True],
    "sequence": ["1", -1],
    "saved_at": [5, "yesterday", "2026-11-30T12:00:00", "0001-01-01T00:00:00+10:00"],
    "stored": [5, None],
    "chosen": [0, "yes"],
    "handled": [["01"], "0123", "0123456789AB"],
    "handlers": ["audit", [5], {"audit": 1}],
    "apart": [["audit"], 5, "audit", None],
    "snapshot": [
        *(5, {}, SNAPSHOT | {"state": "odd"}, SNAPSHOT | {"paused": 1}),
        *(SNAPSHOT | {"collections": wrong} for wrong in ("orders", [5])),
        *(SNAPSHOT | {"ranges": {"0c": RANGE | {"last": wrong}}} for wrong in ("DgA", "€", 5)),
    ],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, each) for name in WRONG for each in WRONG[name]]
)
def test_a_wrong_field_is_named_with_what_to_do(name: str, value: Any) -> None:
    with pytest.raises(CheckpointCorrupt, match=rf"{name} .*tailrace checkpoints reset"):
        Checkpoint.from_document(RECORDS[Checkpoint] | {name: value}, where="here")


def test_a_wrong_gap_says_what_to_do() -> None:
    message = r"read: since is not a list of seconds and increment\..*remove this record by hand"
    with pytest.raises(CheckpointCorrupt, match=message):
        Gap.from_document(RECORDS[Gap] | {"since": [1]}, where="here")


def test_a_record_without_a_position_is_corrupt() -> None:
    empty = {"event_token": None, "high_water": None, "cluster_time": None}
    with pytest.raises(CheckpointCorrupt, match="neither a token nor a time"):
        Checkpoint.from_document(RECORDS[Checkpoint] | empty, where="here")


def test_the_record_of_a_handler_that_stands_elsewhere() -> None:
    """Single events take twelve characters each; without such a handler there is no such field."""
    document = RECORDS[Checkpoint] | {"apart": {"audit": APART}, "handlers": ["lake"]}
    checkpoint = Checkpoint.from_document(document, where="here")
    audit = checkpoint.of("audit")
    assert audit is not None
    assert audit.position.handled == {"0123456789ab", "ba9876543210"}
    assert (audit.observed_generation, checkpoint.observed_generation) == (3, 0)
    assert checkpoint.to_document() == document
    assert not {"apart", "damaged"} & RECORDS[Checkpoint].keys()


WRONG_APART = [
    *(5, None, [], {}, "audit", APART | {"kind": "odd"}, APART | {"handled": "0123"}),
    *(APART | {"cluster_time": [1]}, APART | {"observed_generation": -1}, APART | {"snapshot": 5}),
    APART | {"high_water": None, "cluster_time": None},
    {name: value for name, value in APART.items() if name != "kind"},
]


@pytest.mark.parametrize("wrong", WRONG_APART, ids=str)
def test_a_damaged_position_concerns_its_handler_alone_and_is_written_back(wrong: Any) -> None:
    apart = {"audit": wrong, "table": APART}
    document = RECORDS[Checkpoint] | {"apart": apart, "handlers": ["lake"]}
    checkpoint = Checkpoint.from_document(document, where="here")
    assert checkpoint.of("audit") is None
    assert checkpoint.of("lake") == CHECKPOINT.last
    assert checkpoint.damaged == {"audit": wrong}
    assert checkpoint.to_document() == document
    moved = checkpoint.with_subscriptions({"lake": checkpoint.apart["table"]})
    assert written(moved)["apart"]["audit"] == wrong
    assert Checkpoint.from_document(written(moved), where="here") == moved
    # A new position replaces it.
    mended = moved.with_subscriptions({"audit": CHECKPOINT.last})
    assert (mended.of("audit"), mended.damaged) == (CHECKPOINT.last, {})


@given(st.dictionaries(st.sampled_from(NAMES_OF_HANDLERS), st.none() | JSON, min_size=1))
def test_whatever_stands_for_one_handler_harms_no_other(apart: dict[str, Any]) -> None:
    document = RECORDS[Checkpoint] | {"apart": apart | {"table": APART}, "handlers": ["log"]}
    checkpoint = Checkpoint.from_document(document, where="here")
    assert checkpoint.damaged == apart
    assert checkpoint.of("log") == CHECKPOINT.last
    assert checkpoint.of("table") is not None
    assert Checkpoint.from_document(written(checkpoint), where="here") == checkpoint


def test_the_record_of_a_snapshot() -> None:
    document = RECORDS[Checkpoint] | {"snapshot": SNAPSHOT}
    checkpoint = Checkpoint.from_document(document, where="here")
    assert checkpoint.position.snapshot is not None
    assert checkpoint.position.snapshot.ranges["0c"].last == DocumentId(bson.encode({"_id": 7}))
    assert checkpoint.to_document() == document


def test_a_start_point_depends_on_the_kind() -> None:
    position = CHECKPOINT.position
    invalidate = replace(position, kind=PositionKind.INVALIDATE)
    token, time = position.high_water, position.cluster_time
    no_idle_token = replace(position, high_water=None)
    assert position.start_point == StartPoint(resume_after=token)
    assert no_idle_token.start_point == StartPoint(resume_after=position.event_token)
    assert invalidate.start_point == StartPoint(start_after=token)
    assert replace(no_idle_token, event_token=None).start_point == StartPoint(None, None, time)


def test_numbers_of_bson_are_numbers() -> None:
    wide = RECORDS[Checkpoint] | {"epoch": Int64(4), "cluster_time": [Int64(1_700_000_000), 3]}
    assert Checkpoint.from_document(wide, where="here") == CHECKPOINT


@given(GAPS, GAPS, ZONES)
def test_the_digest_is_that_of_the_whole_whatever_the_zone(
    gap: Gap, other: Gap, zone: timezone
) -> None:
    assert (gap.digest == other.digest) == (gap == other)
    assert replace(gap, recorded_at=gap.recorded_at.astimezone(zone)).digest == gap.digest


def test_a_digest_stays_the_same_in_later_releases() -> None:
    """Stores identify gaps by it, so another digest would store a gap twice."""
    assert GAP.digest == "21868206d82733905b15720d23c9dba0"
