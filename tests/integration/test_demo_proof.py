"""The demo's proof can fail, for events and for tables; and what the demo shows of both."""

import re
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pytest
from bson.int64 import Int64
from deltalake import write_deltalake
from rich.console import Console

from tailrace.demo import demonstrate
from tailrace.demo.display import Display
from tailrace.demo.processes import run_pipeline
from tailrace.demo.tables import compare_tables, show_tables
from tailrace.demo.verification import replay
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, TailraceError
from tailrace.event.extended_json import to_json

SHOP = {"db": "shop", "coll": "orders"}


def event(token: int, operation: str, key: Any = 1, **fields: Any) -> str:
    """A line of the events file."""
    document: dict[str, Any] = {
        "_id": {"_data": f"{token:04d}"},
        "operationType": operation,
        "ns": SHOP,
        "documentKey": {"_id": key},
        **fields,
    }
    return to_json(bson.encode(document), canonical=True)


def update(token: int, **updated: Any) -> str:
    return event(token, "update", updateDescription={"updatedFields": updated})


LINES = [
    event(1, "insert", fullDocument={"_id": 1, "n": Int64(1), "tags": ["a"]}),
    event(2, "insert", Int64(2), fullDocument={"_id": Int64(2), "n": 0.5}),
    update(3, n=Int64(2)),
    update(4, n=Int64(3)),
    event(5, "replace", Int64(2), fullDocument={"_id": Int64(2), "m": float("nan")}),
    event(6, "insert", 3, fullDocument={"_id": 3}),
    event(7, "delete", 3),
]
SOURCE = {
    "shop.orders": [
        bson.encode({"_id": 1, "n": Int64(3), "tags": ["a"]}),
        bson.encode({"_id": Int64(2), "m": float("nan")}),
    ],
    "shop.empty": [],
}


def problems(lines: list[str]) -> list[str]:
    return replay(lines).differences(SOURCE)


def test_all_events_in_order_give_the_source() -> None:
    """A repetition changes nothing, but is counted."""
    assert problems(LINES) == []
    assert replay(LINES).operations == {"insert": 3, "update": 2, "replace": 1, "delete": 1}
    again = [*LINES[:4], *LINES[1:4], *LINES[4:]]
    assert (problems(again), replay(again).duplicates) == ([], 3)


def test_a_lost_line_and_a_wrong_order_are_found() -> None:
    """The loss of line 2 cannot be found: the next update sets the same field again."""
    for lost in (0, 1, 3, 4, 5, 6):
        assert problems(LINES[:lost] + LINES[lost + 1 :]), lost
    for first, second in (0, 2), (2, 3), (5, 6):  # adjacent events of one document
        lines = LINES.copy()
        lines[first], lines[second] = lines[second], lines[first]
        assert problems(lines), first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"$numberLong":"3"}', '{"$numberInt":"3"}'),
        ('{"$numberDouble":"NaN"}', "null"),
        ('"tags":["a"]', '"tags":{"0":"a"}'),
    ],
)
def test_a_changed_type_is_found(old: str, new: str) -> None:
    assert len(problems([line.replace(old, new) for line in LINES])) == 1


def test_an_update_of_an_unknown_document_is_reported_and_uses_the_full_document() -> None:
    lines = [event(1, "update", fullDocument={"_id": 1, "n": 1}, updateDescription={})]
    played = replay(lines)
    assert len(played.unfounded) == 1
    source = {"shop.orders": [bson.encode({"_id": 1, "n": 1})]}
    assert played.differences(source) == played.unfounded


def test_a_row_of_a_snapshot_is_what_its_events_give() -> None:
    """An update may precede its document's row; after the end, every document must be known."""
    marks = [event(number, name) for number, name in ((1, "snapshotBegin"), (9, "snapshotEnd"))]
    begun = event(2, "update", 7, fullDocument={"_id": 7, "n": 1})
    row = event(3, "read", 7, fullDocument={"_id": 7, "n": 1})
    stale = event(3, "read", 7, fullDocument={"_id": 7, "n": 0})
    assert replay([marks[0], begun, row, marks[1]]).unfounded == []
    assert "differs" in replay([marks[0], begun, stale, marks[1]]).unfounded[0]
    assert "is not there" in replay([*marks, begun]).unfounded[0]


def test_collections_move_with_a_rename_and_vanish_with_a_drop() -> None:
    moved = {"db": "shop", "coll": "archive"}
    renamed = [*LINES, event(8, "rename", to=moved)]
    assert list(replay(renamed).collections) == ["shop.archive"]
    assert replay([*renamed, event(9, "drop", ns=moved)]).collections == {}
    gone = [*renamed, event(9, "dropDatabase", ns={"db": "shop"}), event(10, "invalidate")]
    assert replay(gone).collections == {}


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"_id":1}', LINES[0][:-5]])
def test_a_line_that_is_not_an_event_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not a change event"):
        replay([LINES[0], line])


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": 1, "revision": Int64(3), "tags": ["a"]},
    {"_id": {"x": 1}, "m": float("nan")},
]
STORED = {"shop.orders": [bson.encode(each) for each in DOCUMENTS], "shop.empty": []}


def row(document: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """A row as the pipeline would create it."""
    key = to_json(bson.encode({"_id": document["_id"]}), canonical=True)
    text = to_json(bson.encode(document), canonical=True)
    made = {"document_key": key, "document": text, "operation": "insert", "cluster_time": NOON}
    return made | columns


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.mkdir(parents=True)
    write_deltalake(path, pa.Table.from_pylist(rows))


def found(tmp_path: Path, rows: list[dict[str, Any]], name: str = "shop.orders") -> list[str]:
    table(tmp_path / "current" / name, rows)
    return compare_tables(tmp_path, STORED)


GOOD = [row(each) for each in DOCUMENTS]


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        (GOOD[:1], "the table has no such document$"),
        ([*GOOD, GOOD[0]], "1.*more than once"),
        ([GOOD[0], GOOD[1] | {"document": None}], "the table has None"),
        ([*GOOD, row({"_id": 2})], "the source has no such document"),
        ([*GOOD, row({"_id": 2}) | {"document": None}], "the source has no such document"),
        ([GOOD[1], row(DOCUMENTS[0] | {"revision": 3})], "numberLong.*numberInt"),
        ([GOOD[1], row({"_id": 1, "tags": ["a"], "revision": Int64(3)})], "revision.*tags"),
    ],
)
def test_each_way_to_be_wrong_is_found(
    tmp_path: Path, rows: list[dict[str, Any]], difference: str
) -> None:
    """A document missing, duplicate, unknown or extra; another type; another order of fields."""
    [said] = found(tmp_path, rows)
    assert said.startswith("shop.orders ")
    assert re.search(difference, said)


def test_only_equal_tables_are_a_proof(tmp_path: Path) -> None:
    """A missing table lacks every document; every document of an unknown table is extra."""
    assert len(compare_tables(tmp_path, STORED)) == len(DOCUMENTS)
    assert found(tmp_path, GOOD) == []
    assert len(found(tmp_path, GOOD, "shop.other")) == len(DOCUMENTS)


def test_rows_and_versions_are_shown_in_order(tmp_path: Path) -> None:
    """The rows of each table, latest changes first; the versions of one document in order."""
    table(tmp_path / "current" / "shop.orders", GOOD)
    versions = [
        row(
            {"_id": key, "revision": revision},
            valid_from=NOON,
            valid_to=None if last else NOON,
            ended_by=None if last else "update",
            valid_from_position=revision,
        )
        for key, revision, last in ((1, 2, True), (1, 0, False), (1, 1, False), (2, 0, True))
    ]
    table(tmp_path / "history" / "shop.orders", versions)
    table(tmp_path / "changes", [{"wall_time": NOON, "operation": "insert"}])
    printed = StringIO()
    show_tables(
        Display(Console(file=printed, width=160), 1), tmp_path, "shop.orders", "shop.orders"
    )
    lines = [re.sub(r"\s+", " ", line).strip() for line in printed.getvalue().splitlines()]
    assert "changes: 1 rows" in lines
    assert "shop.orders 2 4" in lines
    assert any(line.startswith('{"_id":1} insert 12:00:00') for line in lines)
    first = next(at for at, line in enumerate(lines) if "one document" in line) + 4
    for line, revision in zip(lines[first:], (0, 1, 2), strict=False):
        ended = "12:00:00 update" if revision < 2 else ""
        assert re.match(f'insert 12:00:00 ?{ended}.*"revision":{revision}', line)


async def test_a_pipeline_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    """Nothing has landed here, so the pipeline fails."""
    layout = Layout(tmp_path)
    with pytest.raises(TailraceError, match=r"(?s)the pipeline ended with code [12];.*data/lake"):
        await run_pipeline(layout)


async def test_the_missing_extra_is_a_matter_of_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is the command that installs it."""
    for ours in ("demonstration", "tables"):
        monkeypatch.delitem(sys.modules, f"tailrace.demo.{ours}", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(
        ConfigurationError, match=r"pip install '\.\[demo\]' in a checkout.*deltalake"
    ):
        await demonstrate(1, tmp_path)
