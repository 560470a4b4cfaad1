"""A lake in a bucket of a real S3 server, over deaths of the service and of the server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest

from tailrace.lake.storage import ObjectStoreError
from tailrace.lake.writable_lake import WritableLake
from tests.daemon import Daemon, Make, until
from tests.lake import rows
from tests.load import scripted_load
from tests.s3 import S3
from tests.scripted import ScriptedSet


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    server = S3(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.kill()


@pytest.fixture
def lake(s3: S3, tmp_path: Path) -> WritableLake:
    return WritableLake.open(f"s3://lake/{tmp_path.name}")


@pytest.fixture
def run(scripted: ScriptedSet, daemon: Make, lake: WritableLake) -> Daemon:
    """A daemon that lands in the lake."""
    scope = {"name": "orders", "database": "shop", "collection": "orders", "max_await_time_ms": 200}
    return daemon(
        scripted.uri,
        scopes=[scope],
        handlers={"lake": {"type": "parquet", "path": lake.path, "segment_seconds": 0.1}},
        routes=[{"scope": "orders", "handlers": ["lake"]}],
    ).start()


def ids(lake: WritableLake, copy: Path) -> list[Any]:
    """The documents' ids, from a copy of the lake that is brought up to date."""
    (copy / "orders").mkdir(parents=True, exist_ok=True)
    for number in lake.segments("orders"):
        name = f"orders/seg-{number:012d}.parquet"
        if not (copy / name).exists():
            (copy / name).write_bytes(lake.storage.read(name))
    return [bson.decode(row["document_key"])["_id"] for row in rows(copy, "orders")]


def until_landed(lake: WritableLake, copy: Path, last: int) -> None:
    """A server that has just come back may not find its objects yet."""

    def landed() -> bool:
        try:
            return ids(lake, copy)[-1:] == [last]
        except ObjectStoreError:
            return False

    until(landed, "the last event", 120)


def test_every_event_comes_once_over_kills_of_the_daemon_and_of_the_server(
    scripted: ScriptedSet, run: Daemon, lake: WritableLake, s3: S3, tmp_path: Path
) -> None:
    def until_segments() -> None:
        before = len(lake.segments("orders"))
        until(lambda: len(lake.segments("orders")) > before + 1, "segments")

    with scripted_load(scripted) as load:
        until_segments()
        run.signal(signal.SIGKILL)
        run.wait()
        run.start()
        until_segments()
        if s3.ours:  # a server of someone else's is not ended
            restarts = run.status()["restarts"]
            s3.kill()
            until(lambda: run.status()["restarts"] > restarts, "a restart", 120)
            assert "s3://lake/" in run.status()["last_error"]
            assert run.status()["state"] != "halted"
            s3.start()
        load.more()
    until_landed(lake, tmp_path / "copy", load.written - 1)
    assert run.stop() == 0
    assert ids(lake, tmp_path / "copy") == list(range(load.written))
    assert "Traceback" not in run.log
    assert "AWS" not in run.log
