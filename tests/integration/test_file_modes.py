"""Files with documents in them are not readable for everybody, whatever the umask is."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.demo.child_process import child_process
from tests.daemon import until
from tests.orders import Orders


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that removes no permission; child processes inherit it."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(files: list[Path]) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files}


def test_files_of_the_daemon_are_not_readable_for_everybody(orders: Orders) -> None:
    run = orders.daemon(
        source="async def handle(event):\n    raise OSError\n",
        delivery={"retry": {"attempts": 1}},
        handlers={
            "file": {"type": "jsonl", "path": "data/events.jsonl"},
            "lake": {"type": "parquet", "path": "data/lake", "segment_seconds": 0.2},
            "refuses": {"type": "python", "target": "mine:handle"},
        },
        routes=[{"scope": "orders", "handlers": ["file", "lake", "refuses"]}],
        store={"path": "data/tailrace.db"},
    ).start()
    orders.insert(1)
    until(lambda: run.logged("event.dead_lettered"), "the dead letter")
    data = run.directory / "data"
    until(lambda: len([*data.rglob("*.parquet")]) >= 2, "a segment")

    def files() -> list[Path]:
        return [path for path in data.rglob("*") if path.is_file() and ".draft" not in path.name]

    found = modes(files())
    assert set(found.values()) == {"0o640"}, found
    kinds = (".jsonl", ".parquet", ".db", ".db-wal", ".db-shm")
    assert all(any(name.endswith(kind) for name in found) for kind in kinds), found
    assert run.stop() == 0, run.log


async def test_logs_of_the_demo_are_not_readable_for_everybody(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    command = [sys.executable, "-c", "print('a document')"]
    async with child_process(command, log=log) as process:
        await process.process.wait()
    assert log.read_text() == "a document\n"
    assert modes([log]) == {"service.log": "0o640"}
