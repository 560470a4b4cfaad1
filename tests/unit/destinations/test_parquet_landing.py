"""Landing: the newest segment is the position; gaps and row groups."""

import json
from dataclasses import replace
from pathlib import Path

import bson
import pyarrow.parquet as pq
import pytest

from tailrace.engine import RunIdentity
from tailrace.lake import segment_writer
from tailrace.lake.segment import Documents, Footer
from tailrace.model import SinkPosition
from tests.lake import footer, land, rows, segments, tokens
from tests.unit.destinations.landings import (
    GAP,
    OWNER,
    begun,
    drafts,
    events,
    landed,
    landing,
    segments_of,
)
from tests.unit.engine.changes import change, time, token

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


def test_the_footer_has_the_position_of_the_scope(path: Path) -> None:
    one = begun(path)
    land(one, events(1, 2))
    said = footer(segments(path, "orders")[1])
    assert said.lake == json.loads((path / "lake.json").read_text())["id"]
    assert (said.scope, said.segment, said.rows) == ("orders", 1, 2)
    assert (said.first_ordinal, said.last_ordinal) == (0, 1)
    assert (said.token, said.cluster_time) == (token(2), time(2))
    assert (said.cluster, said.fingerprint, said.epoch) == ("rs0/1", "fingerprint", 1)
    assert (said.documents, said.gap) == (Documents.BSON, None)


def test_a_scope_continues_after_a_change_of_the_form_of_documents(path: Path) -> None:
    before = landing(path, Documents.CANONICAL)
    before.begin(OWNER)
    land(before, events(1))
    assert begun(path).begin(OWNER) == SinkPosition(token(1), time(1), "fingerprint")
    forms = [footer(file).documents for file in segments(path, "orders").values()]
    assert forms == [Documents.CANONICAL, Documents.CANONICAL, Documents.BSON]


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


def test_the_footer_names_the_epoch_of_the_owner_who_wrote(path: Path) -> None:
    """It relates a segment to the logs. A store that was lost and starts again does no harm."""
    first, store_lost = replace(OWNER, epoch=7), replace(OWNER, epoch=1)
    land(begun(path, first), events(1))
    land(begun(path, store_lost), events(2))
    found = [footer(file) for file in segments(path, "orders").values()]
    assert [one.owner_epoch for one in found] == [7, 7, 1, 1]
    assert landed(path) == [1, 2]


def test_segments_from_before_the_epoch_of_the_owner_are_read(path: Path) -> None:
    begun(path)
    said = footer(segments(path, "orders")[0])
    record = json.loads(said.to_json())
    del record["owner_epoch"]
    earlier = Footer.from_json(json.dumps(record).encode(), where="earlier")
    assert earlier == replace(said, owner_epoch=0)


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


@pytest.mark.parametrize(
    ("bound", "value"),
    [("_ROW_GROUP_EVENTS", 5), ("_ROW_GROUP_BYTES", 5 * len(bson.encode(change(0))) - 1)],
)
def test_row_groups_go_to_the_draft_as_they_are_complete(
    path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """So only a part of a segment is in memory, bounded by its number of events and by bytes."""
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


def test_the_next_run_discards_appended_events(path: Path) -> None:
    one = begun(path)
    one.append(events(1))
    assert one.begin(OWNER) is None
    land(one, events(2))
    assert landed(path) == [2]


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


def test_after_a_gap_the_token_keeps_what_it_belongs_to(path: Path) -> None:
    land(begun(path), events(1))
    later = RunIdentity("orders", "rs0/1", "another", 2)
    begun(path, later).record(GAP)
    position = landing(path).begin(later)
    assert position == SinkPosition(token(1), time(1), "fingerprint")
