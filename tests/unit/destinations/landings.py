"""Landing as processes do it, and the resulting content of the lake."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest

from tailrace.destinations.parquet.landing import Landing
from tailrace.engine import RunIdentity
from tailrace.lake.segment import Documents
from tailrace.lake.writable_lake import WritableLake
from tailrace.model.gap import Gap
from tests.lake import rows, segments
from tests.unit.engine.changes import change, time, token

OWNER = RunIdentity("orders", "rs0/1", "fingerprint", 1)
GAP = Gap(
    "orders", token(1), time(1), time(9), "the oplog", "skip", datetime(2026, 1, 1, tzinfo=UTC)
)


def landing(path: Path, documents: Documents = Documents.BSON) -> Landing:
    """A landing as a new process creates it."""
    return Landing(WritableLake.open(str(path)), "orders", documents)


def begun(path: Path, owner: RunIdentity = OWNER) -> Landing:
    made = landing(path)
    made.begin(owner)
    return made


def events(*numbers: int) -> Sequence[bytes]:
    return [bson.encode(change(n)) for n in numbers]


def landed(path: Path) -> list[int]:
    """The numbers of the events in the lake; checks that segments and rows are consecutive."""
    return [bson.decode(row["document_key"])["_id"] for row in rows(path, "orders")]


def segments_of(path: Path) -> list[int]:
    return list(segments(path, "orders")) if (path / "orders").exists() else []


def drafts(path: Path) -> list[str]:
    return [name for name in os.listdir(path / "orders") if name.endswith(".draft")]


def fail(monkeypatch: pytest.MonkeyPatch, name: str, number: int, when: int = 1) -> None:
    """Makes the ``when``-th call of ``os.<name>`` fail."""
    real = getattr(os, name)
    calls = iter(range(1, 1000))

    def call(*arguments: Any, **keywords: Any) -> Any:
        if next(calls) == when:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, call)
