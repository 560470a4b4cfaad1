"""A lake in a bucket of a real S3 server, while the service and the server are killed."""

from pathlib import Path
from typing import Any

import bson
import pytest

from tailrace.lake.storage import ObjectStoreError
from tailrace.lake.writable_lake import WritableLake
from tests.daemon import until
from tests.lake import rows
from tests.orders import Orders
from tests.s3 import S3


def ids(lake: WritableLake, copy: Path) -> list[Any]:
    """The ids of the documents, read from an updated copy of the lake."""
    (copy / "orders").mkdir(parents=True, exist_ok=True)
    for number in lake.segments("orders"):
        name = f"orders/seg-{number:012d}.parquet"
        if not (copy / name).exists():
            (copy / name).write_bytes(lake.storage.read(name))
    return [bson.decode(row["document_key"])["_id"] for row in rows(copy, "orders")]


def test_every_event_comes_once_over_kills_of_the_daemon_and_of_the_server(
    orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = S3(tmp_path)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    lake, copy = WritableLake.open(f"s3://lake/{tmp_path.name}"), tmp_path / "copy"
    run = orders.daemon(
        handlers={"lake": {"type": "parquet", "path": lake.path, "segment_seconds": 0.1}},
        routes=[{"scope": "orders", "handlers": ["lake"]}],
    ).start()

    def until_segments() -> None:
        before = len(lake.segments("orders"))
        until(lambda: len(lake.segments("orders")) > before + 1, "segments")

    def landed() -> list[Any]:
        try:
            return ids(lake, copy)
        except ObjectStoreError:
            return []  # a server that has just restarted may not find its objects yet

    try:
        with orders.load() as load:
            until_segments()
            run.kill()
            run.start()
            until_segments()
            restarts = run.status()["restarts"]
            s3.kill()
            until(lambda: run.status()["restarts"] > restarts, "a restart", 120)
            assert "s3://lake/" in run.status()["last_error"]
            assert run.status()["state"] != "halted"
            s3.start()
            load.more()
        until(lambda: landed()[-1:] == [load.written - 1], "the last event", 120)
        assert run.stop() == 0
        assert ids(lake, copy) == list(range(load.written))
        assert "Traceback" not in run.log
        assert "AWS" not in run.log
    finally:
        s3.kill()
