"""The contract's test of comparisons passes logs and tables, and fails one that is wrong."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.testing import DestinationContract
from tests.verifying import TABLE

LOGS: Mapping[str, Mapping[str, Any]] = {
    "jsonl": {"type": "jsonl", "path": "events.jsonl"},
    "parquet": {"type": "parquet", "path": "lake", "segment_seconds": 0.05},
}
BROKEN = {
    "no position is compared": ("HeldRows(rows, found and found[0])", "HeldRows(rows)", "begin"),
    "expected rows are others": (
        'made.append(row(event.field_bytes("fullDocument")))',
        'made.append({"document": event.field_bytes("fullDocument"), "n": 1})',
        "document 1 is written",
    ),
    "rows are those of before": (
        "self.connection.execute(sql, (place(collection), key.raw)).fetchone()",
        "self.connection.execute(sql, (place(collection), keys[0].raw)).fetchone()",
        "document 2 is written",
    ),
    "a page is left out": ("ORDER BY hex(key) LIMIT", "ORDER BY hex(key) DESC LIMIT", "misses"),
}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(handler: Mapping[str, Any], *, once: bool) -> None:
    contract = DestinationContract()
    contract.handler, contract.once = handler, once
    contract.test_a_comparison_tells_the_same_rows_from_others()


def compared_table(directory: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    (directory / "compared_table.py").write_text(code)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "compared_table", raising=False)
    compared({"type": "python", "target": "compared_table:Positioned"}, once=True)


@pytest.mark.parametrize("kind", LOGS)
def test_what_a_log_amounts_to_is_told_from_other_documents(kind: str) -> None:
    compared(LOGS[kind], once=kind == "parquet")


def test_rows_are_told_from_others(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared_table(directory, monkeypatch, TABLE)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_comparison_that_is_wrong_fails(
    directory: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    right, wrong, message = BROKEN[fault]
    assert right in TABLE
    with pytest.raises(AssertionError, match=message):
        compared_table(directory, monkeypatch, TABLE.replace(right, wrong))
