"""Landing: the newest segment is the position, numbers are taken once, errors say what to do."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.engine import Owner
from tailrace.errors import (
    CheckpointError,
    CheckpointFenced,
    DestinationUnavailable,
    ScopeHalted,
    SegmentUnreadable,
)
from tailrace.handlers.parquet import segment_writer
from tailrace.handlers.parquet.landing import Landing
from tailrace.lake.directory import Directory, DirectoryDraft
from tailrace.lake.segment import FOOTER_KEY, Documents
from tailrace.lake.writable_lake import WritableLake
from tailrace.model import SinkPosition
from tailrace.model.gap import Gap
from tests.lake import footer, land, rows, segments, tokens
from tests.unit.engine.changes import change, time, token

OWNER = Owner("orders", "rs0/1", "fingerprint", 1)
GAP = Gap(
    "orders", token(1), time(1), time(9), "the oplog", "skip", datetime(2026, 1, 1, tzinfo=UTC)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def landing(path: Path, documents: Documents = Documents.BSON) -> Landing:
    """As a new process makes it."""
    return Landing(WritableLake.open(str(path)), "orders", documents)


def begun(path: Path, owner: Owner = OWNER) -> Landing:
    made = landing(path)
    made.begin(owner)
    return made


def events(*numbers: int) -> Sequence[bytes]:
    return [bson.encode(change(n)) for n in numbers]


def landed(path: Path) -> list[int]:
    """The numbers of the events in the lake; checks that segments and rows follow one another."""
    return [bson.decode(row["document_key"])["_id"] for row in rows(path, "orders")]


def segments_of(path: Path) -> list[int]:
    return list(segments(path, "orders")) if (path / "orders").exists() else []


def drafts(path: Path) -> list[str]:
    return [name for name in os.listdir(path / "orders") if name.endswith(".draft")]


def fail(monkeypatch: pytest.MonkeyPatch, name: str, number: int, when: int = 1) -> None:
    """The ``when``-th call of ``os.<name>`` fails."""
    real = getattr(os, name)
    calls = iter(range(1, 1000))

    def call(*arguments: Any, **keywords: Any) -> Any:
        if next(calls) == when:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, call)


# --- positions -----------------------------------------------------------------------------


def test_the_newest_segment_is_the_position(path: Path) -> None:
    one = landing(path)
    assert one.begin(OWNER) is None
    land(one, events(1, 2))
    land(one, events(3))
    again = landing(path)
    assert again.begin(OWNER) == SinkPosition(token(3), time(3), "fingerprint")
    land(again, events(4, 5))
    assert landed(path) == [1, 2, 3, 4, 5]
    assert tokens(rows(path, "orders"))[1] == token(2).document
    assert [footer(file).rows for file in segments(path, "orders").values()] == [0, 2, 1, 0, 2]


def test_the_footer_says_where_the_scope_stands(path: Path) -> None:
    one = begun(path)
    land(one, events(1, 2))
    said = footer(segments(path, "orders")[1])
    assert said.lake == json.loads((path / "lake.json").read_text())["id"]
    assert (said.scope, said.segment, said.rows) == ("orders", 1, 2)
    assert (said.first_ordinal, said.last_ordinal) == (0, 1)
    assert (said.token, said.cluster_time) == (token(2), time(2))
    assert (said.cluster, said.fingerprint, said.epoch) == ("rs0/1", "fingerprint", 1)
    assert (said.documents, said.gap) == (Documents.BSON, None)


def test_each_process_begins_an_epoch_and_each_run_continues_it(path: Path) -> None:
    one = begun(path)
    land(one, events(1))
    one.begin(OWNER)
    land(one, events(2))
    land(begun(path), events(3))
    found = [footer(file) for file in segments(path, "orders").values()]
    assert [one.epoch for one in found] == [1, 1, 1, 2, 2]
    assert [one.rows for one in found] == [0, 1, 1, 0, 1]
    assert [one.token for one in found] == [None, token(1), token(2), token(2), token(3)]
    assert len({one.writer for one in found}) == 2


def test_scopes_are_apart(path: Path) -> None:
    land(begun(path), events(1))
    other = Landing(WritableLake.open(str(path)), "carts", Documents.BSON)
    assert other.begin(Owner("carts", "rs0/1", "f", 1)) is None
    land(other, events(7))
    assert [row["ordinal"] for row in rows(path, "carts")] == [0]
    assert landed(path) == [1]


def test_segments_may_differ_in_how_documents_are_kept(path: Path) -> None:
    land(begun(path), events(1))
    text = landing(path, Documents.CANONICAL)
    assert text.begin(OWNER) == SinkPosition(token(1), time(1), "fingerprint")
    land(text, events(2))
    key = rows(path, "orders")[1]["document_key"]
    assert json.loads(key) == {"_id": {"$numberInt": "2"}}


def test_retired_segments_are_not_missed(path: Path) -> None:
    one = begun(path)
    for n in range(4):
        land(one, events(n))
    for number in range(4):
        segments(path, "orders")[number].unlink()
    assert landing(path).begin(OWNER) == SinkPosition(token(3), time(3), "fingerprint")


def test_a_commit_writes_one_segment_of_all_appended_events(path: Path) -> None:
    one = begun(path)
    one.commit()
    for n in range(3):
        one.append(events(2 * n, 2 * n + 1))
    assert landed(path) == []
    one.commit()
    one.commit()
    assert landed(path) == list(range(6))
    assert segments_of(path) == [0, 1]


def test_the_next_run_discards_appended_events(path: Path) -> None:
    one = begun(path)
    one.append(events(1))
    assert one.begin(OWNER) is None
    land(one, events(2))
    assert landed(path) == [2]


@pytest.mark.parametrize(
    ("bound", "value"),
    [("_ROW_GROUP_EVENTS", 5), ("_ROW_GROUP_BYTES", 5 * len(bson.encode(change(0))) - 1)],
)
def test_row_groups_go_to_the_draft_as_they_are_complete(
    path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """So little of a segment is in memory, by the number of events and by their bytes."""
    monkeypatch.setattr(segment_writer, bound, value)
    one = begun(path)
    held = []
    for n in range(0, 60, 2):
        one.append(events(n, n + 1))
        held.append(one.held)
    (draft,) = drafts(path)
    assert (path / "orders" / draft).stat().st_size > max(held)
    assert max(held) <= 4 * len(events(0)[0])
    one.commit()
    assert (landed(path), drafts(path), one.held) == (list(range(60)), [], 0)
    assert pq.ParquetFile(segments(path, "orders")[1]).num_row_groups == 12


def test_discarded_events_leave_no_draft(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "_ROW_GROUP_EVENTS", 1)
    one = begun(path)
    one.append(events(1))
    assert len(drafts(path)) == 1
    one.begin(OWNER)
    assert drafts(path) == []
    one.append(events(1))
    with monkeypatch.context() as patch:
        fail(patch, "write", errno.ENOSPC)
        with pytest.raises(DestinationUnavailable, match="segment 1 could not be written: No spac"):
            one.append(events(2))
    assert (drafts(path), one.held) == ([], 0)
    assert one.begin(OWNER) is None
    land(one, events(1, 2))
    assert landed(path) == [1, 2]


# --- gaps ----------------------------------------------------------------------------------


def test_a_gap_is_a_segment_without_rows(path: Path) -> None:
    one = begun(path)
    land(one, events(1))
    one.record(GAP)
    land(one, events(20))
    said = [footer(file) for file in segments(path, "orders").values()][1:]
    assert [one.rows for one in said] == [1, 0, 1]
    assert [one.gap for one in said] == [None, GAP.to_document(), None]
    assert (said[1].first_ordinal, said[1].last_ordinal, said[1].token) == (1, 0, token(1))
    assert landed(path) == [1, 20]


def test_a_gap_before_the_first_event_has_no_position(path: Path) -> None:
    begun(path).record(GAP)
    assert landing(path).begin(OWNER) is None


def test_behind_a_gap_the_token_keeps_what_it_belongs_to(path: Path) -> None:
    land(begun(path), events(1))
    later = Owner("orders", "rs0/1", "another", 2)
    begun(path, later).record(GAP)
    position = landing(path).begin(later)
    assert position == SinkPosition(token(1), time(1), "fingerprint")


# --- two writers ---------------------------------------------------------------------------


def before_a_name(
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[], object],
    of: Any = os,
    call: str = "link",
) -> None:
    """Acts once, when the next draft is about to get its name (``os.link``: it is written)."""
    real = getattr(of, call)

    def first(*arguments: Any, **keywords: Any) -> None:
        monkeypatch.setattr(of, call, real)
        act()
        real(*arguments, **keywords)

    monkeypatch.setattr(of, call, first)


def test_the_later_process_goes_on_alone(path: Path) -> None:
    old = begun(path)
    land(old, events(1, 2))
    new = begun(path)
    with pytest.raises(CheckpointFenced) as fenced:
        land(old, events(3))
    assert str(fenced.value) == (
        f"scope 'orders': {path}/orders/seg-000000000002.parquet was written by another process "
        "(its epoch is 2, ours 1), which lands this scope now. Nothing was written twice. Stop "
        "one of the two; restart this one to let it land again"
    )
    land(new, events(3))
    for _ in range(2):
        with pytest.raises(CheckpointFenced, match="its epoch is 2, ours 1"):
            old.begin(OWNER)
    with pytest.raises(CheckpointError, match="the events before an error were discarded"):
        land(old, events(4))
    with pytest.raises(CheckpointFenced, match="its epoch is 2, ours 1"):
        old.record(GAP)
    land(new, events(4))
    assert landed(path) == [1, 2, 3, 4]


def test_of_two_processes_that_begin_at_once_each_has_an_epoch_of_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found the same newest segment. Their claims are alike but for the writer's name."""
    land(begun(path), events(1))
    one, other = landing(path), landing(path)
    before_a_name(monkeypatch, lambda: other.begin(OWNER), of=DirectoryDraft, call="finish")
    with pytest.raises(CheckpointError, match="another process wrote segment 2 just now") as lost:
        one.begin(OWNER)
    assert not isinstance(lost.value, CheckpointFenced), "it may pass"
    one.begin(OWNER)
    with pytest.raises(CheckpointFenced, match="its epoch is 3, ours 2"):
        land(other, events(2))
    land(one, events(2))
    assert landed(path) == [1, 2]


def test_what_an_old_process_wrote_before_the_claim_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was still draining: the new one looks again, and continues after that."""
    old = begun(path)
    land(old, events(1))
    new = landing(path)
    drains = partial(land, old, events(2, 3))
    before_a_name(monkeypatch, drains, of=DirectoryDraft, call="finish")
    with pytest.raises(CheckpointError):
        new.begin(OWNER)
    assert new.begin(OWNER) == SinkPosition(token(3), time(3), "fingerprint")
    land(new, events(4))
    assert landed(path) == [1, 2, 3, 4]


@pytest.mark.parametrize("write", ["land", "record"])
def test_an_old_process_knows_at_once_that_its_draft_was_removed_by_a_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    old = begun(path)
    land(old, events(1))
    before_a_name(monkeypatch, lambda: land(begun(path), events(2)))
    with pytest.raises(CheckpointFenced, match=r"-000000000002.parquet.*its epoch is 2, ours 1"):
        land(old, events(2)) if write == "land" else old.record(GAP)
    assert landed(path) == [1, 2]
    assert drafts(path) == []


def test_a_draft_is_left_alone_while_its_name_is_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a process that looks where it stands keeps no other from its claim."""
    old, new = begun(path), landing(path)
    before_a_name(monkeypatch, lambda: old.begin(OWNER))
    new.begin(OWNER)
    land(new, events(1))
    assert landed(path) == [1]


def test_without_another_process_a_draft_that_is_gone_is_an_outage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = begun(path)

    def remove() -> None:
        (draft,) = drafts(path)
        (path / "orders" / draft).unlink()

    before_a_name(monkeypatch, remove)
    with pytest.raises(
        DestinationUnavailable, match="No such file or directory: it is tried again"
    ) as e:
        land(one, events(1))
    assert not isinstance(e.value, CheckpointFenced)
    assert one.begin(OWNER) is None
    land(one, events(1))
    assert landed(path) == [1]


# --- what may pass -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "when"),
    [
        ("open", 1),
        ("write", 1),
        ("fsync", 1),
        ("link", 1),
        ("unlink", 1),
        ("open", 2),
        ("fsync", 2),
    ],
)
def test_after_a_write_that_fails_anywhere_the_lake_says_where_it_stands(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, when: int
) -> None:
    """Before the link nothing is there; after it the segment is."""
    one = begun(path)
    land(one, events(1))
    with monkeypatch.context() as patch:
        fail(patch, call, errno.ENOSPC, when)
        with pytest.raises(DestinationUnavailable) as failed:
            land(one, events(2, 3))
    assert not isinstance(failed.value, CheckpointFenced)
    assert str(failed.value) == (
        f"lake {path}: scope 'orders': segment 2 could not be written: No space left on device: "
        "free some space. What was landed is intact"
    )
    with pytest.raises(CheckpointError, match="the events before an error were discarded"):
        one.append(events(4))
    linked = call == "unlink" or when == 2
    reached = 3 if linked else 1
    assert one.begin(OWNER) == SinkPosition(token(reached), time(reached), "fingerprint")
    if not linked:
        land(one, events(2, 3))
    land(one, events(4))
    assert landed(path) == [1, 2, 3, 4]
    assert segments_of(path) == [0, 1, 2, 3]
    assert drafts(path) == []


def test_a_partial_write_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:100]))
    land(begun(path), events(1, 2, 3))
    assert landed(path) == [1, 2, 3]


def test_an_outage_of_the_lookup_may_pass(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = landing(path)
    monkeypatch.setattr(Directory, "list", lambda *_: os.listdir("/dev/null"))
    with pytest.raises(
        DestinationUnavailable, match="the newest segment could not be looked up: Not a"
    ):
        one.begin(OWNER)


def test_drafts_of_a_crash_are_removed(path: Path) -> None:
    """Those of the newest segment, of the one that the new process takes, and of the lake."""
    land(begun(path), events(1))
    names = ["orders/.seg-000000000001.parquet", "orders/.seg-000000000002.parquet", ".lake.json"]
    left = [path / f"{name}.{'0' * 32}.draft" for name in names]
    for draft in left:
        draft.write_bytes(b"half")
    foreign = path / "orders" / "_note"
    foreign.write_bytes(b"of a person")
    begun(path)
    assert [draft for draft in left if draft.exists()] == []
    assert foreign.exists()


# --- what requires manual intervention -----------------------------------------------------


def of_another_format(file: Path) -> None:
    with pq.ParquetWriter(file, pa.schema([("a", pa.int64())])) as writer:
        writer.add_key_value_metadata({FOOTER_KEY: b'{"format": 99}'})


def of_another_lake(file: Path) -> None:
    another = file.parent.parent.parent / "another"
    land(begun(another), events(1))
    shutil.copy(segments(another, "orders")[1], file)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: os.truncate(file, 500), "is damaged, or not a Parquet file"),
        (lambda file: os.truncate(file, 0), "is damaged, or not a Parquet file"),
        (lambda file: file.write_text("long enough"), "is damaged, or not a Parquet file"),
        (
            lambda file: pq.write_table(pa.table({"a": [1]}), file),
            "is not a segment: its metadata has no 'tailrace'",
        ),
        (of_another_format, "its footer is not that of a segment: format 99 is not 1"),
        (of_another_lake, "belongs to the lake .*, not to "),
        (
            lambda file: shutil.copy(file.with_name("seg-000000000001.parquet"), file),
            "is segment 1 of scope 'orders'",
        ),
    ],
)
def test_a_newest_segment_that_is_none_halts(
    path: Path, damage: Callable[[Path], object], said: str
) -> None:
    one = begun(path)
    land(one, events(1))
    land(one, events(2))
    newest = segments(path, "orders")[2]
    damage(newest)
    before = newest.read_bytes()
    with pytest.raises(SegmentUnreadable, match=said) as refused:
        begun(path)
    assert str(newest) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert newest.read_bytes() == before
    assert segments_of(path) == [0, 1, 2]


def test_a_missing_number_halts(path: Path) -> None:
    one = begun(path)
    for n in range(4):
        land(one, events(n))
    segments(path, "orders")[2].unlink()
    with pytest.raises(SegmentUnreadable, match=r"seg-000000000002.parquet is missing"):
        begun(path)


def test_another_cluster_halts(path: Path) -> None:
    land(begun(path), events(1))
    with pytest.raises(ScopeHalted, match="was landed from the cluster rs0/1, and "):
        begun(path, Owner("orders", "rs0/2", "fingerprint", 1))


def test_a_lake_that_was_removed_meanwhile_halts(path: Path) -> None:
    """Landing on from nothing would look like an empty lake."""
    one = begun(path)
    land(one, events(1))
    shutil.rmtree(path)
    with pytest.raises(DestinationUnavailable):
        land(one, events(2))
    with pytest.raises(SegmentUnreadable, match=r"has no lake.json any more: it was removed"):
        one.begin(OWNER)
    assert not path.exists()


def test_a_lake_that_was_replaced_meanwhile_halts(path: Path) -> None:
    one = begun(path)
    shutil.rmtree(path)
    another = WritableLake.open(str(path))
    with pytest.raises(SegmentUnreadable, match=f"now holds the lake {another.id}"):
        one.begin(OWNER)


def test_an_event_that_is_none_halts(path: Path) -> None:
    one = begun(path)
    land(one, events(1))
    with pytest.raises(ScopeHalted, match=f"after token {token(1).digest} cannot be landed: malf"):
        land(one, [*events(2), b"\x09\0\0\0nonsense", *events(3)])
    assert landed(path) == [1]
