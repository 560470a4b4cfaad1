"""The SQLite store when all is well: its file, its durability, and the loop beside it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from tailrace.checkpoints import sqlite_file
from tailrace.checkpoints.sqlite import SqliteStore
from tailrace.checkpoints.sqlite_file import APPLICATION_ID, BUSY_SECONDS, SCHEMA_VERSION
from tests.contract.checkpoint_stores import NOW, checkpoint, gap

ROOT = Path(__file__).parents[2]

SAVE_AND_DIE = """
import asyncio, os, signal, sys
from tailrace.checkpoints import sqlite_file
from tailrace.checkpoints.sqlite import SqliteStore
from tests.contract.checkpoint_stores import checkpoint

async def main():
    async with SqliteStore.open(sys.argv[1]) as store:
        for sequence in range(1, 8):
            await store.save(checkpoint(sequence=sequence))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


RECORD_AND_DIE = """
import asyncio, os, signal, sys
from datetime import timedelta
from tailrace.checkpoints.sqlite import SqliteStore
from tests.contract.checkpoint_stores import NOW, gap

async def main():
    async with SqliteStore.open(sys.argv[1]) as store:
        for hours in range(3):
            await store.record_gap(gap(recorded_at=NOW + timedelta(hours=hours)))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


@pytest.fixture
async def written(path: Path) -> Path:
    """A store of forty scopes, closed."""
    async with SqliteStore.open(path) as store:
        for number in range(40):
            await store.save(checkpoint(f"scope-{number:02}", fingerprint="f" * 200))
    return path


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop run until another thread has made it true."""
    while not condition():  # noqa: ASYNC110 - a thread does it, which sets no event
        await asyncio.sleep(0)


class TestTheFile:
    async def test_directories_are_made(self, tmp_path: Path) -> None:
        path = tmp_path / "var" / "lib" / "checkpoints.db"
        async with SqliteStore.open(path) as store:
            await store.save(checkpoint())
        assert path.is_file()

    async def test_nothing_else_is_left_beside_it(self, written: Path) -> None:
        assert [each.name for each in written.parent.iterdir()] == ["checkpoints.db"]

    async def test_a_relative_path_and_odd_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in (":memory:", "file:x?mode=memory", "50% off #1.db"):
            async with SqliteStore.open(name) as store:
                await store.save(checkpoint())
            assert (tmp_path / name).stat().st_size > 0

    async def test_a_person_can_read_it(self, written: Path) -> None:
        with closing(sqlite3.connect(written)) as connection:
            row = connection.execute(
                "SELECT scope, epoch, sequence, document FROM checkpoints ORDER BY scope"
            ).fetchone()
        assert row[:3] == ("scope-00", 1, 1)
        assert json.loads(row[3])["cluster_time"] == [1_700_000_000, 3]

    async def test_a_person_can_read_the_gaps(self, written: Path) -> None:
        async with SqliteStore.open(written) as store:
            await store.record_gap(gap())
        with closing(sqlite3.connect(written)) as connection:
            ((scope, digest, document),) = connection.execute(
                "SELECT scope, digest, document FROM gaps"
            )
        assert (scope, digest) == ("orders", gap().digest)
        assert json.loads(document) == gap().to_document()

    async def test_it_is_durable_by_its_settings(self, path: Path) -> None:
        """What keeps a commit over a power cut: the log is synchronised at each of them."""
        async with SqliteStore.open(path) as store:
            pragma = store._connection.execute
            assert pragma("PRAGMA journal_mode").fetchone() == ("wal",)
            assert pragma("PRAGMA synchronous").fetchone() == (2,)
            assert pragma("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert pragma("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
            assert pragma("PRAGMA busy_timeout").fetchone() == (BUSY_SECONDS * 1000,)

    async def test_a_copy_without_a_log_gets_one(self, written: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        execute_outside = sqlite3.connect(written, isolation_level=None)
        with closing(execute_outside) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        async with SqliteStore.open(copy) as store:
            assert len(await store.list()) == 40
            await store.save(checkpoint())

    async def test_many_processes_open_a_new_one_at_once(self, path: Path) -> None:
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(_open_and_save, path, f"scope-{number:02}")
        async with SqliteStore.open(path) as store:
            assert len(await store.list()) == 12
        assert [each.name for each in path.parent.iterdir()] == ["checkpoints.db"]

    def test_of_two_that_create_it_at_once_the_first_stays(self, path: Path) -> None:
        """Both saw that there was none; a rename would take the first one's file from under it."""
        sqlite_file._create(path)
        first = sqlite_file.identity(path)
        sqlite_file._create(path)
        assert sqlite_file.identity(path) == first
        assert [each.name for each in path.parent.iterdir()] == ["checkpoints.db"]

    async def test_a_file_system_without_hard_links(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
        await _open_and_save(path, "orders")
        assert [each.name for each in path.parent.iterdir()] == ["checkpoints.db"]


async def _open_and_save(path: Path, scope: str) -> None:
    async with SqliteStore.open(path) as store:
        await store.save(checkpoint(scope))


class TestDurability:
    async def test_a_killed_process_loses_nothing_that_was_saved(self, path: Path) -> None:
        command = [sys.executable, "-c", SAVE_AND_DIE, str(path)]
        killed = await anyio.run_process(command, check=False, cwd=ROOT)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        async with SqliteStore.open(path) as store:
            assert await store.load("orders") == checkpoint(sequence=7)

    async def test_a_killed_process_loses_no_gap_that_was_recorded(self, path: Path) -> None:
        command = [sys.executable, "-c", RECORD_AND_DIE, str(path)]
        killed = await anyio.run_process(command, check=False, cwd=ROOT)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        async with SqliteStore.open(path) as store:
            assert list(await store.gaps("orders")) == [
                gap(recorded_at=NOW + timedelta(hours=hours)) for hours in range(3)
            ]

    async def test_a_cancelled_save_is_finished_once_it_began(self, path: Path) -> None:
        """The lock makes the save wait in its thread; the cancel comes then."""
        async with SqliteStore.open(path) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                async with anyio.create_task_group() as group:
                    group.start_soon(store.save, checkpoint())
                    await until(store._lock.locked)
                    group.cancel_scope.cancel()
                    asyncio.get_running_loop().call_soon(other.execute, "ROLLBACK")
                assert not store._lock.locked()  # the cancelled call waited for its thread
            assert await store.load("orders") == checkpoint()

    async def test_a_task_cancelled_by_asyncio_shares_the_connection_with_nobody(
        self, path: Path
    ) -> None:
        """Task.cancel() breaks anyio's shield: the next call must still wait for the thread."""
        async with SqliteStore.open(path) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                first = asyncio.create_task(store.save(checkpoint()))
                await until(store._lock.locked)
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                assert store._lock.locked()
                second = asyncio.create_task(store.load("orders"))
                await asyncio.sleep(0)
                other.execute("ROLLBACK")
                assert await second == checkpoint()


class TestTheLoop:
    async def test_it_runs_while_a_save_waits(self, path: Path) -> None:
        """Only the loop can release the lock that the save waits for: a barrier, not a clock."""
        async with SqliteStore.open(path) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                save = asyncio.create_task(store.save(checkpoint()))
                await until(store._lock.locked)
                other.execute("ROLLBACK")
                await save

    async def test_a_hundred_scopes_take_one_thread_and_nobody_elses(self, path: Path) -> None:
        shared = anyio.to_thread.current_default_thread_limiter()
        async with SqliteStore.open(path) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                async with asyncio.TaskGroup() as group:
                    for number in range(100):
                        group.create_task(store.save(checkpoint(f"scope-{number}")))
                    await until(lambda: store._limiter.statistics().tasks_waiting == 99)
                    assert shared.borrowed_tokens == 0
                    assert store._limiter.borrowed_tokens == 1
                    other.execute("ROLLBACK")
            assert len(await store.list()) == 100
