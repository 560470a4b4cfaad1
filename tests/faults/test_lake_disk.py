"""A lake on a file system of its own that is temporarily full or read-only.

The service waits and says why. Then every event is in the lake once, in order.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import bson
import pytest

from tests.daemon import until
from tests.faults.disk import fill, remount
from tests.lake import rows
from tests.orders import Orders


@contextmanager
def full(disk: Path, free_bytes: int = 0) -> Iterator[None]:
    """Fills the disk except for ``free_bytes`` bytes."""
    ballast = fill(disk)
    os.truncate(ballast, ballast.stat().st_size - free_bytes)
    yield
    ballast.unlink()


def after_a_page(disk: Path) -> AbstractContextManager[None]:
    return full(disk, os.sysconf("SC_PAGESIZE"))


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    remount(disk, "ro")
    yield
    remount(disk, "rw")


NO_SPACE = "No space left on device: free some space"
READ_ONLY = "Read-only file system: the file system may have been remounted read-only"


@pytest.mark.parametrize(
    ("fault", "said", "code", "refused"),
    [
        (full, NO_SPACE, 1, "handlers.lake: no lake can be opened at {}: " + NO_SPACE),
        (after_a_page, NO_SPACE, 0, ""),
        (
            read_only,
            READ_ONLY,
            2,
            "handlers.lake.path: no lake can be opened at {}: Read-only file system. ",
        ),
    ],
)
def test_every_event_comes_once_despite_a_full_or_read_only_disk(
    orders: Orders,
    disk: Path,
    fault: Callable[[Path], AbstractContextManager[None]],
    said: str,
    code: int,
    refused: str,
) -> None:
    """A start meanwhile is refused in one line. Everything but the lake is on another disk."""
    lake = disk / "lake"
    run = orders.daemon(
        handlers={"lake": {"type": "parquet", "path": str(lake), "segment_seconds": 0.05}},
        routes=[{"scope": "orders", "handlers": ["lake"]}],
    ).start()

    def ids() -> list[Any]:
        there = (lake / "orders").exists()
        found = rows(lake, "orders") if there else []
        return [bson.decode(row["document_key"])["_id"] for row in found]

    with orders.load() as load:
        until(lambda: len(ids()) > 10, "some events")
        with fault(disk):
            until(lambda: run.logged("watcher.restarting"), "the restart")
            load.more()
            before = ids()
            until(lambda: run.status()["state"] == "waiting", "the wait")
            assert f"{said}. What was landed is intact" in run.status()["last_error"]
            assert before == list(range(len(before))), "readers see whole segments all the while"
        load.more()
    until(lambda: ids()[-1:] == [load.written - 1], "the last event")
    assert run.stop() == 0, run.log
    if code:
        with fault(disk):
            run.start(ready=False)
            assert run.wait() == code
        (entry,) = run.logged("service.refused")
        assert refused.format(lake) in entry["reason"]
    assert ids() == list(range(load.written))
    assert not list((lake / "orders").glob("*.draft"))
    errors = {entry["error"] for entry in run.logged("watcher.restarting")}
    assert all(said in error for error in errors)
    assert "Traceback" not in run.log
    assert not (run.directory / "data").exists(), "no dead letters"


def test_a_disk_that_is_full_in_mid_snapshot_repeats_no_row(orders: Orders, disk: Path) -> None:
    """Landed rows stay intact. The rest lands as soon as there is space, and no row lands twice."""
    orders.insert_each({"_id": n, "text": "x" * 1000} for n in range(600))
    lake = disk / "lake"
    slow = {"mode": "initial", "chunk_documents": 20, "documents_per_second": 200}
    run = orders.daemon(
        scope={"snapshot": slow},
        handlers={"lake": {"type": "parquet", "path": str(lake), "segment_seconds": 0.05}},
        routes=[{"scope": "orders", "handlers": ["lake"]}],
    ).start()

    def landed(operation: str) -> list[Any]:
        there = (lake / "orders").exists()
        found = rows(lake, "orders") if there else []
        keys = [row["document_key"] for row in found if row["operation"] == operation]
        return [key and bson.decode(key)["_id"] for key in keys]

    until(lambda: len(landed("read")) > 50, "some rows")
    with full(disk):
        message = f"{NO_SPACE}. What was landed is intact"
        until(lambda: message in (run.status()["last_error"] or ""), "the reason")
        until(lambda: run.status()["state"] == "waiting", "the wait")
        assert len(landed("read")) < 600
    until(lambda: landed("snapshotEnd"), "the end")
    assert run.stop() == 0, run.log
    assert landed("read") == list(range(600))
    assert len(landed("snapshotBegin")) == 1
