"""The keys of handlers that no other module is about: what each one does."""

import os
from pathlib import Path

import pytest

from tailrace.config.delivery import DeliverySettings
from tailrace.engine import PerBatch
from tailrace.event import ChangeEvent
from tailrace.handlers import open_handlers
from tailrace.handlers.jsonl import JsonlHandlerSettings
from tailrace.handlers.parquet import ParquetHandlerSettings
from tests.handlers import deliver
from tests.unit.engine.changes import change


@pytest.mark.parametrize("fsync", [True, False])
async def test_fsync_decides_whether_a_line_is_on_the_disk_before_its_event_is_handled(
    fsync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(path.read_bytes()))
    settings = JsonlHandlerSettings(type="jsonl", path=str(path), fsync=fsync)
    async with open_handlers({"audit": settings}, DeliverySettings()) as opened:
        await deliver(opened["audit"], ChangeEvent.from_document(change(1)))
        assert synced == ([path.read_bytes()] if fsync else [])


async def test_segment_rows_segment_bytes_and_segment_seconds_complete_a_segment(
    tmp_path: Path,
) -> None:
    bounds = {"segment_rows": 7, "segment_bytes": 4096, "segment_seconds": 2.5}
    settings = ParquetHandlerSettings(type="parquet", path=str(tmp_path / "lake"), **bounds)
    async with open_handlers({"lake": settings}, DeliverySettings()) as opened:
        commit, calls = opened["lake"].commit, opened["lake"].calls
        assert commit is not None
        assert (commit.events, commit.bytes, commit.seconds) == (7, 4096, 2.5)
        assert isinstance(calls, PerBatch)
        assert (calls.events, calls.bytes) == (7, 4096)
