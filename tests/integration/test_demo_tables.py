"""The demo's tables: the proof can fail, and what is shown of them is what is there."""

import re
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import bson
import pyarrow as pa
import pytest
from bson.int64 import Int64
from deltalake import write_deltalake
from rich.console import Console

from tailrace.demo import demonstrate
from tailrace.demo.display import Display
from tailrace.demo.picture import draw
from tailrace.demo.processes import run_pipeline
from tailrace.demo.tables import changes, compare_tables, show_tables
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, TailraceError
from tailrace.event.extended_json import to_json

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": 1, "revision": Int64(3), "tags": ["a"]},
    {"_id": {"x": 1}, "m": float("nan")},
]
SOURCE = {"shop.orders": [bson.encode(each) for each in DOCUMENTS], "shop.empty": []}


def row(document: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """A row as the pipeline would make it."""
    key = to_json(bson.encode({"_id": document["_id"]}), canonical=True)
    text = to_json(bson.encode(document), canonical=True)
    made = {"document_key": key, "document": text, "operation": "insert", "cluster_time": NOON}
    return made | columns


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.mkdir(parents=True)
    write_deltalake(path, pa.Table.from_pylist(rows))


def found(tmp_path: Path, rows: list[dict[str, Any]], name: str = "shop.orders") -> list[str]:
    table(tmp_path / "current" / name, rows)
    return compare_tables(tmp_path, SOURCE)


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
    """A document less, twice, unknown, more; another type; another order of fields."""
    [said] = found(tmp_path, rows)
    assert said.startswith("shop.orders ")
    assert re.search(difference, said)


def test_only_equal_tables_are_a_proof(tmp_path: Path) -> None:
    """A missing table lacks every document, and an unknown one has too many."""
    assert len(compare_tables(tmp_path, SOURCE)) == len(DOCUMENTS)
    assert found(tmp_path, GOOD) == []
    assert len(found(tmp_path, GOOD, "shop.other")) == len(DOCUMENTS)


def test_what_is_shown(tmp_path: Path) -> None:
    """Rows of each table, the last changes first; the versions of one document in their order."""
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
    assert changes(tmp_path) == [(NOON.timestamp(), "insert")]
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


def test_a_picture_has_all_operations_the_lag_and_the_restart(tmp_path: Path) -> None:
    """Unknown operations count as others; where the lag is unknown the line has a gap. A run of
    one event and no known lag has a picture too."""
    events = [(at / 10, "insert" if at % 2 else "rename") for at in range(100)]
    lags = [(float(at), None if at == 5 else at / 10) for at in range(10)]
    draw(tmp_path / "picture.svg", events, lags, (4.0, 6.0))
    drawn = ElementTree.parse(tmp_path / "picture.svg").getroot()
    text = ElementTree.tostring(drawn, encoding="unicode")
    for shown in ("#0072b2", "#999999", "the service restarts", "seconds behind the server"):
        assert shown in text
    [line] = re.findall(r'd="([^"]*)"[^>]*stroke: #009e73', text)
    assert line.count("M") == 2
    draw(tmp_path / "picture.svg", [(5.0, "insert")], [(5.0, None)], (5.0, 5.0))
    ElementTree.parse(tmp_path / "picture.svg")


async def test_a_pipeline_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    """Nothing has landed here."""
    layout = Layout(tmp_path)
    with pytest.raises(TailraceError, match=r"(?s)the pipeline ended with code [12];.*data/lake"):
        await run_pipeline(layout)


async def test_the_missing_extra_is_a_matter_of_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is the command that helps."""
    for ours in ("demonstration", "tables"):
        monkeypatch.delitem(sys.modules, f"tailrace.demo.{ours}", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tailrace\[demo\]'.*deltalake"):
        await demonstrate(1, tmp_path)
