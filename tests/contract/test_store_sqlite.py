"""The SQLite store: its file, its durability, and what it says when something is wrong with it."""

# ruff: noqa: ASYNC240 - the files are small, and the loop has nothing else to do

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
import bson
import pytest

from tailrace.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointFenced,
    ConfigurationError,
    DeadLetterError,
)
from tailrace.model import Checkpoint
from tailrace.stores import Store
from tailrace.stores.sqlite import open_store
from tailrace.stores.sqlite_schema import APPLICATION_ID, SCHEMA_VERSION
from tests.contract.stores import checkpoint, gap, key, letter
from tests.unit.engine.changes import change

ROOT = Path(__file__).parents[2]

SAVE_AND_DIE = """
import asyncio, os, signal, sys
from tailrace.stores.sqlite import open_store
from tests.contract.stores import checkpoint, gap, letter

async def main():
    async with open_store(sys.argv[1]) as store:
        for n in range(1, 4):
            await store.checkpoints.save(checkpoint(sequence=n))
            await store.dead_letters.add(letter(n))
        await store.checkpoints.record_gap(gap())
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

OPEN = """
import os, sys
from pathlib import Path
from tailrace.stores.sqlite_schema import open_connection

if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    open_connection(Path(sys.argv[1])).close()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


LARGE = bson.encode(change(1, fullDocument={"text": "x" * 2_000_000}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tailrace.db"


@pytest.fixture
async def written(path: Path) -> Path:
    """A store of forty scopes and a letter, closed."""
    async with open_store(path) as store:
        for number in range(40):
            await store.checkpoints.save(checkpoint(f"scope-{number:02}", fingerprint="f" * 200))
        await store.dead_letters.add(letter())
    return path


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process holds the file's lock for writing meanwhile, unless it lets go sooner."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def open_and_save(path: Path, scope: str) -> None:
    async with open_store(path) as store:
        await store.checkpoints.save(checkpoint(scope))


async def turns(number: int) -> None:
    """Lets others run, until what was started waits for a thread."""
    for _ in range(number):
        await asyncio.sleep(0)


class TestTheFile:
    async def test_nothing_else_is_left_beside_it(self, written: Path) -> None:
        assert [each.name for each in written.parent.iterdir()] == ["tailrace.db"]

    async def test_a_relative_path_and_odd_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in (":memory:", "file:x?mode=memory", "50% off #1.db", "var/lib/deep.db"):
            await open_and_save(Path(name), "orders")
            assert (tmp_path / name).stat().st_size > 0

    async def test_a_person_can_read_it(self, written: Path) -> None:
        async with open_store(written) as store:
            await store.checkpoints.record_gap(gap())
            await store.dead_letters.resolve(letter(), "discarded")
        with closing(sqlite3.connect(written)) as connection:
            row = connection.execute("SELECT * FROM checkpoints ORDER BY scope").fetchone()
            ((*place, document),) = connection.execute("SELECT * FROM gaps")
            ((*head, how),) = connection.execute(
                "SELECT scope, handler, letter, attempts, error, how FROM dead_letters"
            )
        assert row[:3] == ("scope-00", 1, 1)
        assert json.loads(row[3])["cluster_time"] == [1_700_000_000, 3]
        assert place == ["orders", gap().digest]
        assert json.loads(document) == gap().to_document()
        assert head == ["orders", "audit", letter().id, 5, "ValueError: no such order"]
        assert how == "discarded"

    async def test_a_copy_without_a_log_gets_one(self, written: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        with closing(sqlite3.connect(written, isolation_level=None)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        await open_and_save(copy, "orders")
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)

    async def test_many_processes_open_a_new_one_at_once(self, path: Path) -> None:
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(open_and_save, path, f"scope-{number:02}")
        async with open_store(path) as store:
            assert len(await store.checkpoints.list()) == 12
        assert [each.name for each in path.parent.iterdir()] == ["tailrace.db"]

    async def test_a_file_system_without_hard_links(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
        await open_and_save(path, "orders")
        assert [each.name for each in path.parent.iterdir()] == ["tailrace.db"]


class TestDurability:
    async def test_a_killed_process_loses_nothing_that_was_stored(self, path: Path) -> None:
        command = [sys.executable, "-c", SAVE_AND_DIE, str(path)]
        killed = await anyio.run_process(command, check=False, cwd=ROOT)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        async with open_store(path) as store:
            assert await store.checkpoints.load("orders") == checkpoint(sequence=3)
            assert list(await store.checkpoints.gaps("orders")) == [gap()]
            assert await store.dead_letters.letters() == [letter(n) for n in (1, 2, 3)]

    @pytest.mark.parametrize("how", ["scope", "task"])
    async def test_a_cancelled_save_is_finished_and_shares_the_connection_with_nobody(
        self, written: Path, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lock makes the save wait in its thread; the cancel comes then.

        Also where Task.cancel() breaks anyio's shield: the next call must wait for the thread.
        Only the loop can release the lock that the save waits for, so the loop runs meanwhile.
        """
        begun, scope, stat = threading.Event(), anyio.CancelScope(), os.stat

        def noticed(path: Any, **options: Any) -> os.stat_result:
            begun.set()
            return stat(path, **options)

        async with open_store(written) as store:

            async def save() -> None:
                with scope:
                    await store.checkpoints.save(checkpoint())

            with locked(written) as other:
                with monkeypatch.context() as patch:
                    patch.setattr(os, "stat", noticed)
                    saving = asyncio.create_task(save())
                    while not begun.is_set():  # noqa: ASYNC110 - the thread sets it
                        await asyncio.sleep(0)
                (saving if how == "task" else scope).cancel()
                loading = asyncio.create_task(store.checkpoints.load("orders"))
                await turns(10)
                assert not loading.done()
                other.execute("ROLLBACK")
                assert await loading == checkpoint()
                await asyncio.gather(saving, return_exceptions=True)

    async def test_a_hundred_scopes_take_nobody_elses_thread(self, written: Path) -> None:
        shared = anyio.to_thread.current_default_thread_limiter()
        async with open_store(written) as store:
            with locked(written) as other:
                async with asyncio.TaskGroup() as group:
                    for number in range(100):
                        group.create_task(store.checkpoints.save(checkpoint(f"s-{number}")))
                    await turns(10)
                    assert shared.borrowed_tokens == 0
                    other.execute("ROLLBACK")
            assert len(await store.checkpoints.list()) == 140


def execute(path: Path, sql: str, *values: object) -> None:
    """What a person does in the sqlite3 shell."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


async def refusal(path: Path) -> str:
    """The one problem that opening the path ends with."""
    with pytest.raises(ConfigurationError) as caught:
        async with open_store(path):
            raise AssertionError("it was opened")
    (problem,) = caught.value.problems
    assert problem.path == "store.path"
    assert "\n" not in problem.message
    return problem.message


class TestRefusedAtOpen:
    async def test_a_directory(self, tmp_path: Path) -> None:
        assert "is a directory" in await refusal(tmp_path)

    async def test_a_device(self) -> None:
        assert "is not a regular file" in await refusal(Path("/dev/null"))

    @pytest.mark.parametrize("what", ["file", "directory"])
    async def test_what_this_user_may_not_write(self, what: str) -> None:
        """Opened by another user where we are root, to whom every permission is given."""
        with TemporaryDirectory() as name:  # pytest's own directories are closed to others
            path = Path(name) / "tailrace.db"
            async with open_store(path):
                pass
            path.chmod(0o444 if what == "file" else 0o666)
            path.parent.chmod(0o777 if what == "file" else 0o555)
            result = await anyio.run_process([sys.executable, "-c", OPEN, path], cwd=ROOT)
            path.parent.chmod(0o777)
        assert result.stdout.startswith(b"ConfigurationError: store.path: ")
        assert b"cannot be written" in result.stdout

    async def test_a_path_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        for path in (tmp_path / "file" / "c.db", tmp_path / "file" / "deeper" / "c.db"):
            assert "cannot be created or opened" in await refusal(path)

    async def test_a_link_to_nowhere(self, tmp_path: Path) -> None:
        link = tmp_path / "c.db"
        link.symlink_to(tmp_path / "missing" / "c.db")
        assert "cannot be written" in await refusal(link)

    async def test_what_is_not_a_database(self, path: Path) -> None:
        path.write_text("orders: 8265A0\n" * 400)
        assert "is not an SQLite file" in await refusal(path)
        assert path.read_text().startswith("orders")

    async def test_an_empty_file_is_a_loss_and_not_a_new_store(self, path: Path) -> None:
        for content in (b"", b"S", b"SQLite format 3\0"):
            path.write_bytes(content)
            assert f"is cut off ({len(content)} bytes)" in await refusal(path)

    async def test_a_log_without_its_file(self, written: Path) -> None:
        written.rename(f"{written}-wal")
        assert "write-ahead log" in await refusal(written)
        assert not written.exists()

    async def test_another_applications_file(self, path: Path) -> None:
        execute(path, "CREATE TABLE bookmarks (url TEXT)")
        before = path.read_bytes()
        assert "another application" in await refusal(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("version", [1, 2, SCHEMA_VERSION + 1])
    async def test_the_schema_of_another_release(self, written: Path, version: int) -> None:
        execute(written, f"PRAGMA user_version = {version}")
        message = await refusal(written)
        assert f"has schema version {version}; this release reads version 3" in message
        assert "tailrace checkpoints set" in message

    async def test_a_new_file_beside_the_store_of_version_0_1(self, path: Path) -> None:
        """Its default was another path: to start without it would forget its positions."""
        path.with_name("checkpoints.db").write_bytes(b"positions")
        assert "checkpoints.db, a store of version 0.1, whose positions" in await refusal(path)
        assert not path.exists()

    @pytest.mark.parametrize("keep", [1, 50, 511, 512, 1000, 4096, 5000, 8192])
    async def test_a_truncated_file(self, written: Path, keep: int) -> None:
        whole = written.read_bytes()
        assert len(whole) > 8192
        written.write_bytes(whole[:keep])
        message = await refusal(written)
        assert "damaged" in message or "cut off" in message

    async def test_a_damaged_page(self, written: Path) -> None:
        damage(written)
        message = await refusal(written)
        assert "is damaged" in message
        assert "Restore it from a backup" in message

    @pytest.mark.parametrize("table", ["checkpoints", "gaps", "dead_letters"])
    async def test_a_missing_table(self, written: Path, table: str) -> None:
        execute(written, f"DROP TABLE {table}")
        assert "damaged" in await refusal(written)

    async def test_a_read_only_file_system(self, small_disk: Path, remount: Remount) -> None:
        path = small_disk / "tailrace.db"
        async with open_store(path) as store:
            await store.checkpoints.save(checkpoint())
        remount("ro")
        assert "cannot be written" in await refusal(path)
        assert "cannot be created" in await refusal(small_disk / "new.db")
        remount("rw")
        async with open_store(path) as store:
            assert await store.checkpoints.load("orders") == checkpoint()

    async def test_a_lock_may_pass(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no fault of the configuration, so the error is another one."""
        monkeypatch.setattr("tailrace.stores.sqlite_schema.BUSY_SECONDS", 0)
        with closing(sqlite3.connect(written, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CheckpointError, match=r"locked.*Another process"):
                async with open_store(written):
                    raise AssertionError("it was opened")


class TestFailuresInOperation:
    @pytest.mark.parametrize(
        "garbage",
        ["", "not JSON", "[]", '{"format": 1}', '{"format": 2}', b"\xff\xfe", "[" * 99999],
    )
    async def test_records_that_cannot_be_read(self, written: Path, garbage: object) -> None:
        async with open_store(written) as store:
            await store.checkpoints.record_gap(gap("scope-07"))
            await store.checkpoints.record_gap(gap("scope-08"))
            for table in ("checkpoints", "gaps"):
                damaged = f"UPDATE {table} SET document = ? WHERE scope = 'scope-07'"
                execute(written, damaged, garbage)
            for reading in (store.checkpoints.load("scope-07"), store.checkpoints.list()):
                with pytest.raises(CheckpointCorrupt) as caught:
                    await reading
                assert f"{written}, scope 'scope-07': the checkpoint cannot be" in str(caught.value)
            with pytest.raises(CheckpointCorrupt) as caught:
                await store.checkpoints.gaps("scope-07")
            where = f"{written}, scope 'scope-07', gap {gap('scope-07').digest}: the gap record"
            assert str(caught.value).startswith(where)
            assert await store.checkpoints.load("scope-08") is not None
            assert list(await store.checkpoints.gaps("scope-08")) == [gap("scope-08")]

    @pytest.mark.parametrize(
        "damage",
        ["key = 'text'", "at = 'once'", "attempts = -1", "event = 'text'"],
    )
    async def test_a_letter_that_cannot_be_read(self, written: Path, damage: str) -> None:
        execute(written, f"UPDATE dead_letters SET {damage}")
        async with open_store(written) as store:
            where = f"{written}, letter number 1: the dead letter cannot be read"
            with pytest.raises(DeadLetterError, match=where):
                await store.dead_letters.letters()
            assert await store.checkpoints.load("scope-07") is not None
            await store.dead_letters.refresh()

    async def test_a_letter_whose_event_is_damaged_is_still_a_letter(self, written: Path) -> None:
        """It holds its key, is listed, and can be discarded."""
        execute(written, "UPDATE dead_letters SET event = x'ff'")
        async with open_store(written) as store:
            (kept,) = await store.dead_letters.letters()
            assert kept == replace(letter(), raw=b"\xff")
            assert await store.dead_letters.holds("orders", "audit", key(1))
            assert await store.dead_letters.resolve(kept, "discarded")

    async def test_a_gap_of_another_scope(self, written: Path) -> None:
        async with open_store(written) as store:
            await store.checkpoints.record_gap(gap("users"))
        execute(written, "UPDATE gaps SET scope = 'orders', digest = CAST(x'ff41' AS TEXT)")
        async with open_store(written) as store:
            with pytest.raises(CheckpointCorrupt, match=r"gap �A: .* it is that of scope 'users'"):
                await store.checkpoints.gaps("orders")

    async def test_a_file_that_lost_its_last_byte(self, written: Path) -> None:
        """SQLite reads it as zero and sees nothing wrong; the record that it was part of does."""
        written.write_bytes(written.read_bytes()[:-1])
        async with open_store(written) as store:
            with pytest.raises(CheckpointCorrupt, match="not JSON"):
                await store.checkpoints.list()

    async def test_a_name_that_cannot_be_read(self, written: Path) -> None:
        execute(
            written,
            "UPDATE checkpoints SET scope = CAST(x'ff41' AS TEXT) WHERE scope = 'scope-07'",
        )
        async with open_store(written) as store:
            with pytest.raises(CheckpointCorrupt, match="scope '�A'"):
                await store.checkpoints.list()

    async def test_a_record_of_another_scope(self, written: Path) -> None:
        execute(written, "UPDATE checkpoints SET scope = 'users' WHERE scope = 'scope-07'")
        async with open_store(written) as store:
            with pytest.raises(CheckpointCorrupt, match="it is that of scope 'scope-07'"):
                await store.checkpoints.load("users")

    async def test_an_order_that_is_no_number_fences(self, written: Path) -> None:
        execute(written, "UPDATE checkpoints SET epoch = 'many' WHERE scope = 'scope-07'")
        async with open_store(written) as store:
            with pytest.raises(CheckpointFenced, match="epoch many"):
                await store.checkpoints.save(checkpoint("scope-07", epoch=99))

    async def test_a_page_that_is_damaged_under_way(self, written: Path) -> None:
        async with open_store(written) as store:
            damage(written)
            # Another process writes: pages that were read before are read again.
            execute(written, f"PRAGMA user_version = {SCHEMA_VERSION}")
            with pytest.raises(CheckpointCorrupt, match=r"the file is damaged.*backup") as caught:
                await store.checkpoints.list()
            assert str(written) in str(caught.value)
            with pytest.raises(DeadLetterError, match="the file is damaged"):
                await store.dead_letters.letters()

    async def test_a_locked_file(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tailrace.stores.sqlite_schema.BUSY_SECONDS", 0)
        async with open_store(written) as store:
            with locked(written):
                for writing in (
                    store.checkpoints.save(checkpoint()),
                    store.checkpoints.record_gap(gap()),
                ):
                    with pytest.raises(CheckpointError, match=r"'orders': .*locked") as caught:
                        await writing
                    assert type(caught.value) is CheckpointError
                with pytest.raises(DeadLetterError, match=r"handler 'audit': .*locked"):
                    await store.dead_letters.add(letter(2))
                assert key(2) not in store.dead_letters.held("orders", "audit")
                assert await store.checkpoints.load("scope-07") is not None
                assert await store.dead_letters.letters() == [letter()]
            await store.checkpoints.save(checkpoint())
            await store.dead_letters.add(letter(2))

    async def test_a_full_disk(self, small_disk: Path) -> None:
        async with open_store(small_disk / "tailrace.db") as store:
            await store.checkpoints.save(checkpoint())
            ballast = small_disk / "ballast"
            fill(ballast)
            with pytest.raises(CheckpointError, match="disk is full") as caught:
                await save_all(store, (checkpoint(sequence=n) for n in range(2, 500)))
            assert type(caught.value) is CheckpointError
            with pytest.raises(DeadLetterError, match="disk is full"):
                await store.dead_letters.add(letter(raw=LARGE))
            assert await store.checkpoints.load("orders") is not None
            ballast.unlink()
            await store.checkpoints.save(checkpoint(sequence=500))
            assert await store.checkpoints.load("orders") == checkpoint(sequence=500)

    @pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
    async def test_a_file_that_is_not_there_any_more(self, written: Path, how: str) -> None:
        """SQLite goes on writing to it, and the next start would find none of that."""
        aside = written.with_name("aside.db")
        async with open_store(written) as store:
            if how == "replaced":
                aside.write_bytes(written.read_bytes())
                aside.rename(written)
            elif how == "moved":
                written.rename(aside)
            else:
                written.unlink()
            with pytest.raises(CheckpointError, match="moved, replaced or removed"):
                await store.checkpoints.save(checkpoint())
            with pytest.raises(DeadLetterError, match="moved, replaced or removed"):
                await store.dead_letters.add(letter())
            if how == "moved":
                aside.rename(written)
                await store.checkpoints.save(checkpoint())


async def save_all(store: Store, checkpoints: Iterable[Checkpoint]) -> None:
    for each in checkpoints:
        await store.checkpoints.save(each)


def damage(path: Path) -> None:
    """Overwrites the body of every page but the first, in place."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(4096, size, 4096):
            file.seek(page)
            file.write(b"\xa5" * 2048)


def fill(path: Path) -> None:
    """Writes until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            return


Remount = Callable[[str], None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of one megabyte; needs the right to mount."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


@pytest.fixture
def remount(small_disk: Path) -> Remount:
    """Mounts the small disk again with another option, ``ro`` or ``rw``."""

    def run(option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", str(small_disk)], check=True)

    return run
