"""Landing beside another process, on a failing disk, and in a damaged lake."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.engine import RunIdentity
from tailrace.errors import (
    CheckpointError,
    CheckpointFenced,
    ScopeHalted,
    SegmentUnreadable,
    Unavailable,
)
from tailrace.lake.directory import Directory, DirectoryDraft
from tailrace.lake.segment import FOOTER_KEY
from tailrace.model import SinkPosition
from tests.lake import land, segments
from tests.unit.destinations.landings import (
    GAP,
    OWNER,
    begun,
    drafts,
    events,
    fail,
    landed,
    landing,
    segments_of,
)
from tests.unit.engine.changes import time, token

# --- two writers ---------------------------------------------------------------------------


def before(monkeypatch: pytest.MonkeyPatch, of: Any, call: str, act: Callable[[], object]) -> None:
    """Acts once before the next call of ``os.link``, which names a finished draft."""
    real = getattr(of, call)

    def first(*arguments: Any, **keywords: Any) -> None:
        monkeypatch.setattr(of, call, real)
        act()
        real(*arguments, **keywords)

    monkeypatch.setattr(of, call, first)


def test_the_later_process_continues_alone(path: Path) -> None:
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


def test_a_process_that_owns_the_scope_again_continues(path: Path) -> None:
    """For example when processes share scopes, and a scope moves to another one and back."""
    one = begun(path)
    land(one, events(1))
    other = begun(path, replace(OWNER, epoch=2))
    land(other, events(2))
    again = replace(OWNER, epoch=3)
    assert one.begin(again) == SinkPosition(token(2), time(2), "fingerprint")
    land(one, events(3))
    one.begin(again)  # its next run needs no other claim
    land(one, events(4))
    with pytest.raises(CheckpointFenced, match="its epoch is 3, ours 2"):
        land(other, events(3))
    assert landed(path) == [1, 2, 3, 4]


def test_what_an_old_process_wrote_before_the_claim_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was still draining: the new process looks again and continues after that segment."""
    old = begun(path)
    land(old, events(1))
    new = landing(path)
    before(monkeypatch, DirectoryDraft, "finish", lambda: land(old, events(2, 3)))
    with pytest.raises(CheckpointError):
        new.begin(OWNER)
    assert new.begin(OWNER) == SinkPosition(token(3), time(3), "fingerprint")
    land(new, events(4))
    assert landed(path) == [1, 2, 3, 4]


def test_of_two_processes_that_begin_at_once_each_has_an_epoch_of_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found the same newest segment; their claims differ only by the writer's name."""
    one, other = landing(path), landing(path)
    before(monkeypatch, DirectoryDraft, "finish", lambda: other.begin(OWNER))
    with pytest.raises(CheckpointError, match="another process wrote segment 0 just now"):
        one.begin(OWNER)
    one.begin(OWNER)
    with pytest.raises(CheckpointFenced, match="its epoch is 2, ours 1"):
        land(other, events(1))


@pytest.mark.parametrize("write", ["land", "record"])
def test_an_old_process_knows_at_once_that_its_draft_was_removed_by_a_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    old = begun(path)
    land(old, events(1))
    before(monkeypatch, os, "link", lambda: land(begun(path), events(2)))
    with pytest.raises(CheckpointFenced, match=r"-000000000002.parquet.*its epoch is 2, ours 1"):
        land(old, events(2)) if write == "land" else old.record(GAP)
    assert landed(path) == [1, 2]
    assert drafts(path) == []


# --- what may pass -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "when"),
    [("open", 1), ("write", 1), ("fsync", 1), ("link", 1), ("unlink", 1), ("fsync", 2)],
)
def test_after_a_failed_write_the_lake_shows_its_position(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, when: int
) -> None:
    """Before the link the segment does not exist; after the link it does."""
    one = begun(path)
    land(one, events(1))
    with monkeypatch.context() as patch:
        fail(patch, call, errno.ENOSPC, when)
        with pytest.raises(Unavailable) as failed:
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


def test_an_outage_of_the_lookup_may_pass(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = landing(path)
    monkeypatch.setattr(Directory, "list", lambda *_: os.listdir("/dev/null"))
    with pytest.raises(Unavailable, match="the newest segment could not be looked up: Not a"):
        one.begin(OWNER)


def test_drafts_of_a_crash_are_removed(path: Path) -> None:
    """The drafts of the newest segment, of the one that the new process claims, and of the lake."""
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
        begun(path, RunIdentity("orders", "rs0/2", "fingerprint", 1))


def test_a_lake_that_was_removed_meanwhile_halts(path: Path) -> None:
    """Landing from the beginning would look like an empty lake."""
    one = begun(path)
    land(one, events(1))
    shutil.rmtree(path)
    with pytest.raises(Unavailable):
        land(one, events(2))
    with pytest.raises(SegmentUnreadable, match=r"has no lake.json any more: it was removed"):
        one.begin(OWNER)
    assert not path.exists()


def test_an_event_that_is_none_halts(path: Path) -> None:
    one = begun(path)
    land(one, events(1))
    with pytest.raises(ScopeHalted, match=f"after token {token(1).digest} cannot be landed: malf"):
        land(one, [*events(2), b"\x09\0\0\0nonsense", *events(3)])
    assert landed(path) == [1]
