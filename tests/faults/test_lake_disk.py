"""A lake on a disk that is full, or read-only, for a while: real ones, of a file system of its own.

The service waits and says what it waits for; then every event is there once, in its order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson
import pytest

from tests.daemon import Daemon, until
from tests.faults.disk import fill, remount
from tests.lake import rows
from tests.orders import Orders


@pytest.fixture
def lake(disk: Path) -> Path:
    return disk / "lake"


@pytest.fixture
def run(orders: Orders, lake: Path) -> Daemon:
    """A daemon that is not started yet; all that it writes but the lake lies on another disk."""
    return orders.daemon(
        handlers={"lake": {"type": "parquet", "path": str(lake), "segment_seconds": 0.05}},
        routes=[{"scope": "orders", "handlers": ["lake"]}],
    )


def ids(lake: Path) -> list[Any]:
    return [bson.decode(row["document_key"])["_id"] for row in rows(lake, "orders")]


def drafts(lake: Path) -> list[str]:
    return [name for name in os.listdir(lake / "orders") if name.endswith(".draft")]


@contextmanager
def full(disk: Path, free_bytes: int) -> Iterator[None]:
    """Nothing fits but so many bytes."""
    ballast = fill(disk)
    os.truncate(ballast, ballast.stat().st_size - free_bytes)
    yield
    ballast.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    remount(disk, "ro")
    yield
    remount(disk, "rw")


FAULTS = {
    "full": (
        lambda disk: full(disk, 0),
        "No space left on device: free some space",
    ),
    "full after the first page": (
        lambda disk: full(disk, os.sysconf("SC_PAGESIZE")),
        "No space left on device: free some space",
    ),
    "read-only": (
        read_only,
        "Read-only file system: the file system may have been remounted read-only",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_event_comes_once_over_a_disk_that_takes_none(
    orders: Orders, run: Daemon, disk: Path, lake: Path, fault: str
) -> None:
    begins, said = FAULTS[fault]
    run.start()
    with orders.load() as load:
        until(lambda: lake.joinpath("orders").exists() and len(ids(lake)) > 10, "some events")
        with begins(disk):
            until(lambda: run.status()["restarts"] > 2, "some restarts")
            load.more()
            before = ids(lake)
            status = run.status()
            assert status["state"] != "halted"
            assert f"{said}. What was landed is intact" in status["last_error"]
            until(lambda: run.status()["state"] == "backing_off", "the state says so")
            assert before == list(range(len(before))), "readers see whole segments all the while"
        load.more()
    until(lambda: ids(lake)[-1:] == [load.written - 1], "the last event")
    assert run.stop() == 0, run.log
    assert ids(lake) == list(range(load.written))
    assert drafts(lake) == []
    errors = {entry["error"] for entry in run.logged("watcher.restarting")}
    assert all(said in error for error in errors)
    assert "Traceback" not in run.log
    assert not (run.directory / "data").exists(), "no dead letters"


REFUSALS = {
    "full": (1, "handlers.lake: no lake can be opened at {}: " + FAULTS["full"][1]),
    "read-only": (2, "handlers.lake.path: no lake can be opened at {}: Read-only file system. "),
}


@pytest.mark.parametrize("fault", REFUSALS)
def test_a_start_on_such_a_disk_is_refused(
    orders: Orders, run: Daemon, disk: Path, lake: Path, fault: str
) -> None:
    """In one line; and once the disk takes files again, nothing is missing."""
    begins, _ = FAULTS[fault]
    code, said = REFUSALS[fault]
    run.start()
    orders.insert(0, 1)
    until(lambda: lake.joinpath("orders").exists() and ids(lake) == [0, 1], "the events")
    assert run.stop() == 0
    orders.insert(2, 3)
    with begins(disk):
        run.start(ready=False)
        assert run.wait() == code
    (refused,) = run.logged("service.refused")
    assert refused["reason"].startswith(said.format(lake))
    run.start()
    until(lambda: ids(lake) == [0, 1, 2, 3], "the events since")
    assert run.stop() == 0
    assert "Traceback" not in run.log
