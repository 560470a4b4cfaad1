"""The file of the SQLite store: its content, and which files are refused at the start."""

# ruff: noqa: ASYNC240 - the files are small, and the loop has nothing else to do

import errno
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest

from tailrace.errors import CheckpointError, ConfigurationError
from tailrace.model.lease import Lease, Member
from tailrace.stores.sqlite import open_store
from tailrace.stores.sqlite_schema import APPLICATION_ID, SCHEMA_VERSION
from tests.contract.sqlite_files import damage, execute, locked
from tests.contract.stores import checkpoint, gap, letter
from tests.faults.disk import remount


async def open_and_save(path: Path, scope: str = "orders") -> None:
    async with open_store(path) as store:
        await store.checkpoints.save(checkpoint(scope))


async def refusal(path: Path) -> str:
    """The one problem that opening the path raises."""
    with pytest.raises(ConfigurationError) as caught:
        async with open_store(path):
            raise AssertionError("it was opened")
    (problem,) = caught.value.problems
    assert problem.path == "store.path"
    assert "\n" not in problem.message
    return problem.message


async def test_a_relative_path_and_odd_names_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "50% off #1.db", "var/lib/deep.db"):
        await open_and_save(Path(name))
        assert (tmp_path / name).stat().st_size > 0


async def test_a_person_can_read_the_file(written: Path) -> None:
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


async def test_a_copy_without_a_log_gets_one(written: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(written, isolation_level=None)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    await open_and_save(copy)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


COLUMNS = """
SELECT of.name, col.name, col.type FROM sqlite_master AS of, pragma_table_info(of.name) AS col
ORDER BY of.name, col.cid
"""


async def test_another_layout_has_another_version(written: Path) -> None:
    """Else a file of an older checkout would be opened, and fail at the first missing table."""
    with closing(sqlite3.connect(written)) as connection:
        columns = connection.execute(COLUMNS).fetchall()
    layout = hashlib.sha256(repr(columns).encode()).hexdigest()[:16]
    assert (SCHEMA_VERSION, layout) == (7, "136c07e02d7dce4f")


async def test_many_processes_open_a_new_one_at_once(path: Path) -> None:
    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(open_and_save, path, f"scope-{number:02}")
    async with open_store(path) as store:
        assert len(await store.checkpoints.list()) == 12
    assert [each.name for each in path.parent.iterdir()] == ["tailrace.db"]


async def test_a_file_system_without_hard_links_is_accepted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    await open_and_save(path)
    assert [each.name for each in path.parent.iterdir()] == ["tailrace.db"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, "is not a regular file"),
        (lambda path: path.write_bytes(b""), r"is cut off \(0 bytes\)"),
        (lambda path: path.write_text("orders: 8265A0\n" * 400), "is not an SQLite file"),
        (lambda path: path.symlink_to(path.parent / "missing" / "c.db"), "cannot be written"),
        (lambda path: path.with_name(f"{path.name}-wal").touch(), "write-ahead log"),
        (lambda path: execute(path, "CREATE TABLE bookmarks (url TEXT)"), "another application"),
    ],
)
async def test_a_path_that_is_refused(
    path: Path, make: Callable[[Path], None], message: str
) -> None:
    """And the file is left as it is."""
    make(path)
    before = path.read_bytes() if path.is_file() else None
    assert re.search(message, await refusal(path))
    assert (path.read_bytes() if path.is_file() else None) == before


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "cannot be created or opened" in await refusal(tmp_path / "file" / "deeper" / "c.db")


async def test_the_schema_of_another_release_is_refused(written: Path) -> None:
    execute(written, "PRAGMA user_version = 2")
    message = await refusal(written)
    assert f"has schema version 2; this release reads version {SCHEMA_VERSION}" in message
    assert "tailrace scopes seek" in message


@pytest.mark.parametrize("keep", [511, 512, 4096, 8192])
async def test_a_truncated_file_is_refused(written: Path, keep: int) -> None:
    written.write_bytes(written.read_bytes()[:keep])
    message = await refusal(written)
    assert "damaged" in message or "cut off" in message


async def test_a_damaged_page_is_refused(written: Path) -> None:
    damage(written)
    assert re.search("is damaged.*Restore it from a backup", await refusal(written))


async def test_a_read_only_file_system_is_refused(small_disk: Path) -> None:
    path = small_disk / "tailrace.db"
    await open_and_save(path)
    remount(small_disk, "ro")
    assert "cannot be written" in await refusal(path)
    assert "cannot be created" in await refusal(small_disk / "new.db")
    remount(small_disk, "rw")
    async with open_store(path) as store:
        assert await store.checkpoints.load("orders") == checkpoint()


async def test_a_lock_is_no_fault_of_the_configuration(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite_schema.BUSY_SECONDS", 0)
    with locked(written), pytest.raises(CheckpointError, match=r"locked.*Another process"):
        await refusal(written)


async def test_a_renewal_waits_for_no_save_that_comes_after_it(path: Path) -> None:
    """All of it has one turn: on a slow disk, the saves of many scopes would take the lease."""
    ended: list[str] = []

    async def noted(name: str, call: Callable[[], Awaitable[object]]) -> None:
        await call()
        ended.append(name)

    async with open_store(path) as store:
        await store.leases.prepare(["orders"])
        me = Member("1", "one", scopes=frozenset(["orders"]))
        assert await store.leases.acquire(Lease("orders"), me.id, 1, 60)
        renewal = partial(store.leases.renew, me.id, ["orders"], 60, me)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(noted, "renewal", renewal)
            for number in range(5):
                save = partial(store.checkpoints.save, checkpoint(f"scope-{number}"))
                tasks.start_soon(noted, "save", save)
        assert (await store.leases.read()).name(me.id) == me.name
    assert ended == ["renewal", *["save"] * 5]
