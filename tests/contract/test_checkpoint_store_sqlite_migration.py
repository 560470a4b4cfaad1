"""The SQLite store on a file that an older release wrote."""

# ruff: noqa: ASYNC240 - the files are small, and the loop has nothing else to do

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tailrace.checkpoints import sqlite_file
from tailrace.checkpoints.sqlite import SqliteStore
from tailrace.checkpoints.sqlite_file import SCHEMA_VERSION
from tailrace.errors import CheckpointError, ConfigurationError
from tests.contract.checkpoint_stores import checkpoint, gap

# What the releases of version 1 did to a new file. Written out, for their code is gone.
VERSION_1 = """
PRAGMA application_id = 1952541036;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
CREATE TABLE checkpoints (
    scope    TEXT PRIMARY KEY NOT NULL,
    epoch    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    document TEXT NOT NULL  -- JSON: service/tailrace/model/checkpoint.py
) WITHOUT ROWID;
"""
SAVED = [checkpoint(f"scope-{number:02}", epoch=number, sequence=7) for number in range(40)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of version 1 with forty scopes, closed."""
    path = tmp_path / "checkpoints.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(VERSION_1)
        connection.executemany(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?)",
            [(c.scope, c.epoch, c.sequence, json.dumps(c.to_document())) for c in SAVED],
        )
    return path


def shape(path: Path) -> tuple[int, list[str]]:
    """The version of a file, and the names of its tables."""
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return version, sorted(name for (name,) in names)


async def test_its_positions_stay_and_it_takes_gaps(old: Path) -> None:
    assert shape(old) == (1, ["checkpoints"])
    for _ in range(2):
        async with SqliteStore.open(old) as store:
            assert list(await store.list()) == SAVED
            await store.record_gap(gap())
            assert list(await store.gaps("orders")) == [gap()]
    assert shape(old) == (SCHEMA_VERSION, ["checkpoints", "gaps"])


async def test_it_becomes_what_a_new_one_is(old: Path, tmp_path: Path) -> None:
    def schema(path: Path) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
            return [tuple(map(str.strip, row)) for row in connection.execute(sql)]

    for path in (old, tmp_path / "new.db"):
        async with SqliteStore.open(path):
            pass
    assert schema(old) == schema(tmp_path / "new.db")


async def test_a_process_that_still_runs_the_old_release_goes_on(old: Path) -> None:
    with closing(sqlite3.connect(old, isolation_level=None)) as running:
        running.execute("SELECT * FROM checkpoints").fetchall()
        async with SqliteStore.open(old) as store:
            running.execute("DELETE FROM checkpoints WHERE scope = 'scope-00'")
            assert list(await store.list()) == SAVED[1:]


async def test_many_open_it_at_once(old: Path) -> None:
    async def open_and_record(number: int) -> None:
        async with SqliteStore.open(old) as store:
            await store.record_gap(gap(f"scope-{number:02}"))

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(open_and_record, number)
    async with SqliteStore.open(old) as store:
        for number in range(12):
            assert len(await store.gaps(f"scope-{number:02}")) == 1
    assert shape(old) == (SCHEMA_VERSION, ["checkpoints", "gaps"])


def test_of_two_that_saw_the_old_version_one_does_it(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has looked before the first one's lock, and must look again behind it."""
    look = sqlite_file._version
    seen: list[int] = []

    def version(connection: sqlite3.Connection) -> int:
        found = look(connection)
        seen.append(found)
        if len(seen) == 2:  # _check's was the first; _migrate's comes before it takes the lock
            sqlite_file.open_file(old).close()
        return found

    monkeypatch.setattr(sqlite_file, "_version", version)
    sqlite_file.open_file(old).close()
    assert seen[:2] == [1, 1]
    assert seen[-1] == SCHEMA_VERSION
    assert shape(old) == (SCHEMA_VERSION, ["checkpoints", "gaps"])


async def test_where_it_fails_half_way_nothing_has_changed(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = (*sqlite_file._MIGRATIONS[1], "PRAGMA user_version = 2", "DELETE FROM nowhere")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "_MIGRATIONS", {1: statements})
        with pytest.raises(ConfigurationError, match="no such table: nowhere"):
            async with SqliteStore.open(old):
                raise AssertionError("it was opened")
    assert shape(old) == (1, ["checkpoints"])
    async with SqliteStore.open(old) as store:
        assert list(await store.list()) == SAVED


async def test_a_process_that_dies_half_way_has_changed_nothing(old: Path, tmp_path: Path) -> None:
    """Its files are copied at the last moment before the commit."""
    copy = tmp_path / "copy" / old.name
    copy.parent.mkdir()
    with closing(sqlite3.connect(old, isolation_level=None)) as dying:
        dying.execute("BEGIN IMMEDIATE")
        for statement in sqlite_file._MIGRATIONS[1]:
            dying.execute(statement)
        dying.execute("PRAGMA user_version = 2")
        for file in old.parent.glob(f"{old.name}*"):
            shutil.copy(file, copy.parent)
    assert shape(copy) == (1, ["checkpoints"])
    async with SqliteStore.open(copy) as store:
        assert list(await store.list()) == SAVED
    assert shape(copy) == (SCHEMA_VERSION, ["checkpoints", "gaps"])


async def test_a_damaged_one_is_refused_before_it_is_changed(old: Path) -> None:
    with old.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 2048)
    before = old.read_bytes()
    with pytest.raises(ConfigurationError, match="is damaged"):
        async with SqliteStore.open(old):
            raise AssertionError("it was opened")
    assert old.read_bytes() == before


async def test_a_table_of_somebody_elses_is_not_taken_for_ours(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("CREATE TABLE gaps (note TEXT)")
    with pytest.raises(ConfigurationError, match="table gaps already exists"):
        async with SqliteStore.open(old):
            raise AssertionError("it was opened")
    assert shape(old) == (1, ["checkpoints", "gaps"])


async def test_a_lock_may_pass(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0)
    with closing(sqlite3.connect(old, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CheckpointError, match="locked") as caught:
            async with SqliteStore.open(old):
                raise AssertionError("it was opened")
        assert type(caught.value) is CheckpointError
    assert shape(old) == (1, ["checkpoints"])
    async with SqliteStore.open(old) as store:
        assert list(await store.list()) == SAVED


@pytest.mark.parametrize("version", [-1, 0, SCHEMA_VERSION + 1, 99])
async def test_a_version_that_never_was_is_refused(old: Path, version: int) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(ConfigurationError, match=f"has schema version {version}"):
        async with SqliteStore.open(old):
            raise AssertionError("it was opened")
    assert shape(old) == (version, ["checkpoints"])
