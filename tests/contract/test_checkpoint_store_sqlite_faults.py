"""The SQLite store when its file, its disk or its path is not what it should be."""

# ruff: noqa: ASYNC240 - the files are small, and the loop has nothing else to do

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from tailrace.checkpoints.sqlite import SqliteStore
from tailrace.checkpoints.sqlite_file import SCHEMA_VERSION
from tailrace.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointFenced,
    ConfigurationError,
)
from tailrace.model import Checkpoint
from tests.contract.checkpoint_stores import checkpoint, gap

ROOT = Path(__file__).parents[2]

OPEN = """
import os, sys
from pathlib import Path
from tailrace.checkpoints.sqlite_file import open_file

if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    open_file(Path(sys.argv[1])).close()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
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


def execute(path: Path, sql: str, *values: object) -> None:
    """What a person does in the sqlite3 shell."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


async def refusal(path: Path) -> str:
    """The one problem that opening the path ends with."""
    with pytest.raises(ConfigurationError) as caught:
        async with SqliteStore.open(path):
            raise AssertionError("it was opened")
    (problem,) = caught.value.problems
    assert problem.path == "checkpoint.path"
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
            path = Path(name) / "checkpoints.db"
            async with SqliteStore.open(path):
                pass
            path.chmod(0o444 if what == "file" else 0o666)
            path.parent.chmod(0o777 if what == "file" else 0o555)
            result = await anyio.run_process([sys.executable, "-c", OPEN, path], cwd=ROOT)
            path.parent.chmod(0o777)
        assert result.stdout.startswith(b"ConfigurationError: checkpoint.path: ")
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

    async def test_a_newer_schema(self, written: Path) -> None:
        execute(written, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        message = await refusal(written)
        assert f"has schema version {SCHEMA_VERSION + 1}" in message
        assert f"reads version {SCHEMA_VERSION}" in message

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

    @pytest.mark.parametrize("table", ["checkpoints", "gaps"])
    async def test_a_missing_table(self, written: Path, table: str) -> None:
        execute(written, f"DROP TABLE {table}")
        assert "damaged" in await refusal(written)

    async def test_a_read_only_file_system(self, small_disk: Path, remount: Remount) -> None:
        path = small_disk / "checkpoints.db"
        async with SqliteStore.open(path) as store:
            await store.save(checkpoint())
        remount("ro")
        assert "cannot be written" in await refusal(path)
        assert "cannot be created" in await refusal(small_disk / "new.db")
        remount("rw")
        async with SqliteStore.open(path) as store:
            assert await store.load("orders") == checkpoint()

    async def test_a_lock_may_pass(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no fault of the configuration, so the error is another one."""
        monkeypatch.setattr("tailrace.checkpoints.sqlite_file.BUSY_SECONDS", 0)
        with closing(sqlite3.connect(written, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CheckpointError, match=r"locked.*Another process"):
                async with SqliteStore.open(written):
                    raise AssertionError("it was opened")


class TestFailuresInOperation:
    @pytest.mark.parametrize(
        "garbage",
        ["", "not JSON", "[]", "5", '{"format": 1}', '{"format": 2}', b"\xff\xfe", "[" * 100_000],
    )
    async def test_a_record_that_cannot_be_read(self, written: Path, garbage: object) -> None:
        execute(written, "UPDATE checkpoints SET document = ? WHERE scope = 'scope-07'", garbage)
        async with SqliteStore.open(written) as store:
            for reading in (store.load("scope-07"), store.list()):
                with pytest.raises(CheckpointCorrupt) as caught:
                    await reading
                assert f"{written}, scope 'scope-07': the checkpoint cannot be" in str(caught.value)
            assert await store.load("scope-08") is not None

    @pytest.mark.parametrize(
        "garbage",
        ["", "not JSON", "[]", "5", '{"format": 1}', '{"format": 2}', b"\xff\xfe", "[" * 100_000],
    )
    async def test_a_gap_that_cannot_be_read(self, written: Path, garbage: object) -> None:
        async with SqliteStore.open(written) as store:
            await store.record_gap(gap("scope-07"))
            await store.record_gap(gap("scope-08"))
        execute(written, "UPDATE gaps SET document = ? WHERE scope = 'scope-07'", garbage)
        async with SqliteStore.open(written) as store:
            with pytest.raises(CheckpointCorrupt) as caught:
                await store.gaps("scope-07")
            where = f"{written}, scope 'scope-07', gap {gap('scope-07').digest}: the gap record"
            assert str(caught.value).startswith(where)
            assert list(await store.gaps("scope-08")) == [gap("scope-08")]
            assert await store.load("scope-07") is not None

    async def test_a_gap_of_another_scope(self, written: Path) -> None:
        async with SqliteStore.open(written) as store:
            await store.record_gap(gap("users"))
        execute(written, "UPDATE gaps SET scope = 'orders', digest = CAST(x'ff41' AS TEXT)")
        async with SqliteStore.open(written) as store:
            with pytest.raises(CheckpointCorrupt, match=r"gap �A: .* it is that of scope 'users'"):
                await store.gaps("orders")

    async def test_a_file_that_lost_its_last_byte(self, written: Path) -> None:
        """SQLite reads it as zero and sees nothing wrong; the record that it was part of does."""
        written.write_bytes(written.read_bytes()[:-1])
        async with SqliteStore.open(written) as store:
            with pytest.raises(CheckpointCorrupt, match="not JSON"):
                await store.list()

    async def test_a_name_that_cannot_be_read(self, written: Path) -> None:
        execute(
            written,
            "UPDATE checkpoints SET scope = CAST(x'ff41' AS TEXT) WHERE scope = 'scope-07'",
        )
        async with SqliteStore.open(written) as store:
            with pytest.raises(CheckpointCorrupt, match="scope '�A'"):
                await store.list()

    async def test_a_record_of_another_scope(self, written: Path) -> None:
        execute(written, "UPDATE checkpoints SET scope = 'users' WHERE scope = 'scope-07'")
        async with SqliteStore.open(written) as store:
            with pytest.raises(CheckpointCorrupt, match="it is that of scope 'scope-07'"):
                await store.load("users")

    async def test_an_order_that_is_no_number_fences(self, written: Path) -> None:
        execute(written, "UPDATE checkpoints SET epoch = 'many' WHERE scope = 'scope-07'")
        async with SqliteStore.open(written) as store:
            with pytest.raises(CheckpointFenced, match="epoch many"):
                await store.save(checkpoint("scope-07", epoch=99))

    async def test_a_page_that_is_damaged_under_way(self, written: Path) -> None:
        async with SqliteStore.open(written) as store:
            damage(written)
            store._connection.execute("PRAGMA shrink_memory")  # it has just read every page
            with pytest.raises(CheckpointCorrupt, match="the file is damaged") as caught:
                await store.list()
            assert str(written) in str(caught.value)
            assert "backup" in str(caught.value)

    async def test_a_locked_file(self, written: Path) -> None:
        async with SqliteStore.open(written) as store:
            store._connection.execute("PRAGMA busy_timeout = 0")
            with closing(sqlite3.connect(written, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(CheckpointError, match="locked") as caught:
                    await store.save(checkpoint())
                assert type(caught.value) is CheckpointError
                with pytest.raises(CheckpointError, match=r"scope 'orders': .*locked") as caught:
                    await store.record_gap(gap())
                assert type(caught.value) is CheckpointError
                assert await store.load("scope-07") is not None
                assert list(await store.gaps("orders")) == []
            await store.save(checkpoint())
            await store.record_gap(gap())

    async def test_the_greatest_number_of_pages(self, written: Path) -> None:
        """What SQLite says on a full disk, without one."""
        async with SqliteStore.open(written) as store:
            store._connection.execute("PRAGMA max_page_count = 1")
            with pytest.raises(CheckpointError, match=r"disk is full.*Free some space") as caught:
                await save_all(store, (checkpoint(f"scope-{n}") for n in range(40, 99)))
            assert type(caught.value) is CheckpointError
            assert await store.load("scope-07") is not None
            store._connection.execute("PRAGMA max_page_count = 1000")
            await store.save(checkpoint("scope-99"))

    async def test_a_full_disk(self, small_disk: Path) -> None:
        async with SqliteStore.open(small_disk / "checkpoints.db") as store:
            await store.save(checkpoint())
            ballast = small_disk / "ballast"
            fill(ballast)
            with pytest.raises(CheckpointError, match="disk is full") as caught:
                await save_all(store, (checkpoint(sequence=n) for n in range(2, 500)))
            assert type(caught.value) is CheckpointError
            assert await store.load("orders") is not None
            ballast.unlink()
            await store.save(checkpoint(sequence=500))
            assert await store.load("orders") == checkpoint(sequence=500)

    @pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
    async def test_a_file_that_is_not_there_any_more(self, written: Path, how: str) -> None:
        """SQLite goes on writing to it, and the next start would find none of that."""
        aside = written.with_name("aside.db")
        async with SqliteStore.open(written) as store:
            if how == "replaced":
                aside.write_bytes(written.read_bytes())
                aside.rename(written)
            elif how == "moved":
                written.rename(aside)
            else:
                written.unlink()
            with pytest.raises(CheckpointError, match="moved, replaced or removed"):
                await store.save(checkpoint())
            if how == "moved":
                aside.rename(written)
                await store.save(checkpoint())


async def save_all(store: SqliteStore, checkpoints: Iterable[Checkpoint]) -> None:
    for each in checkpoints:
        await store.save(each)


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
