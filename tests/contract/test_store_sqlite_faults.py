"""The SQLite store in operation: kills, cancels, damage, locks, a full disk."""

# ruff: noqa: ASYNC240 - the files are small, and the loop has nothing else to do

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import bson
import pytest

from tailrace.errors import CheckpointCorrupt, CheckpointError, DeadLetterError
from tailrace.model.desired_state import DesiredState
from tailrace.stores.sqlite import open_store
from tailrace.stores.sqlite_schema import SCHEMA_VERSION
from tests.contract.sqlite_files import damage, execute, locked
from tests.contract.stores import NOW, assert_unreadable, checkpoint, gap, key, letter
from tests.faults.disk import fill
from tests.unit.engine.changes import change

LARGE = bson.encode(change(1, fullDocument={"text": "x" * 2_000_000}))


async def turns(number: int) -> None:
    """Lets other tasks run, until the started call waits for a thread."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_a_cancelled_save_is_finished_and_shares_the_connection_with_nobody(
    written: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock makes the save wait in its thread; then the cancel comes.

    This includes Task.cancel(), which breaks anyio's shield: the next call must wait for the
    thread. Only the loop can release the lock on which the save waits, so the loop runs meanwhile.
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


async def test_a_hundred_scopes_take_nobody_elses_thread(written: Path) -> None:
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


@pytest.mark.parametrize("garbage", ['{"format": 2}', b"\xff\xfe", "[" * 99999])
async def test_a_record_in_sqlite_that_cannot_be_read_is_named(
    written: Path, garbage: object
) -> None:
    async with open_store(written) as store:
        await store.checkpoints.record_gap(gap("scope-07"))
        await store.checkpoints.record_gap(gap("scope-08"))
        for table in ("checkpoints", "gaps"):
            damaged = f"UPDATE {table} SET document = ? WHERE scope = 'scope-07'"
            execute(written, damaged, garbage)
        where = f"{written}, scope 'scope-07'"
        checkpoint_told = f"{where}: the checkpoint cannot be read"
        gap_told = f"{where}, gap {gap('scope-07').digest}: the gap record"
        await assert_unreadable(store, "scope-07", where=checkpoint_told, gap=gap_told)
        assert await store.checkpoints.load("scope-08") is not None
        assert list(await store.checkpoints.gaps("scope-08")) == [gap("scope-08")]


async def test_an_unreadable_desired_state_or_position_hides_no_other(written: Path) -> None:
    async with open_store(written) as store:
        for scope in ("orders", "users"):
            await store.desired_states.write(DesiredState(scope, 1, paused=True, by="ann", at=NOW))
            for sequence in (1, 2):
                await store.desired_states.note(checkpoint(scope, sequence=sequence))
        execute(
            written, "UPDATE desired_states SET document = ? WHERE scope = 'orders'", b"\xff\xfe"
        )
        damaged = "UPDATE positions SET document = ? WHERE scope = 'orders' AND sequence = 1"
        execute(written, damaged, "[")
        table = await store.desired_states.list()
        assert [desired.scope for desired in table.states] == ["users"]
        where = f"{written}, scope 'orders': the desired state cannot be read"
        assert table.unreadable["orders"].startswith(where)
        assert [each.sequence for each in await store.desired_states.positions("orders")] == [2]
        await store.desired_states.note(checkpoint("orders", sequence=3))


async def test_a_record_under_another_name_is_named(written: Path) -> None:
    async with open_store(written) as store:
        await store.checkpoints.record_gap(gap("users"))
        execute(written, "UPDATE gaps SET scope = 'orders', digest = CAST(x'ff41' AS TEXT)")
        execute(written, "UPDATE checkpoints SET scope = 'users' WHERE scope = 'scope-07'")
        execute(
            written, "UPDATE checkpoints SET scope = CAST(x'ff41' AS TEXT) WHERE scope = 'scope-08'"
        )
        with pytest.raises(CheckpointCorrupt, match="it is that of scope 'scope-07'"):
            await store.checkpoints.load("users")
        with pytest.raises(CheckpointCorrupt, match=r"gap �A: .* it is that of scope 'users'"):
            await store.checkpoints.gaps("orders")
        await store.checkpoints.reset("users")
        with pytest.raises(CheckpointCorrupt, match="scope '�A'"):
            await store.checkpoints.list()


@pytest.mark.parametrize("damage", ["key = 'text'", "at = 'once'"])
async def test_a_dead_letter_in_sqlite_that_cannot_be_read_is_named(
    written: Path, damage: str
) -> None:
    execute(written, f"UPDATE dead_letters SET {damage}")
    async with open_store(written) as store:
        where = f"{written}, letter number 1: the dead letter cannot be read"
        with pytest.raises(DeadLetterError, match=where):
            await store.dead_letters.letters()
        assert await store.checkpoints.load("scope-07") is not None
        await store.dead_letters.claim("orders", 1)


async def test_a_locked_file_is_waited_for(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
                await store.dead_letters.add(letter(2), 1)
            assert key(2) in store.dead_letters.held("orders", "audit")  # the letter may be stored
            assert not await store.dead_letters.holds("orders", "audit", key(2))
            assert await store.checkpoints.load("scope-07") is not None
            assert await store.dead_letters.letters() == [letter()]
        await store.checkpoints.save(checkpoint())
        await store.dead_letters.add(letter(2), 1)


async def test_a_full_disk_is_an_error_and_damages_nothing(small_disk: Path) -> None:
    async with open_store(small_disk / "tailrace.db") as store:
        await store.checkpoints.save(checkpoint())
        ballast = fill(small_disk)
        with pytest.raises(CheckpointError, match="disk is full") as caught:
            await store.checkpoints.save(checkpoint(sequence=2, fingerprint="f" * 2_000_000))
        assert type(caught.value) is CheckpointError
        with pytest.raises(DeadLetterError, match="disk is full"):
            await store.dead_letters.add(letter(raw=LARGE), 1)
        assert await store.checkpoints.load("orders") is not None
        ballast.unlink()
        await store.checkpoints.save(checkpoint(sequence=500))
        assert await store.checkpoints.load("orders") == checkpoint(sequence=500)


@pytest.mark.parametrize("how", ["replaced", "moved"])
async def test_a_deleted_file_is_an_error(written: Path, how: str) -> None:
    """SQLite keeps writing to the deleted file, and the next start would find none of it."""
    aside = written.with_name("aside.db")
    async with open_store(written) as store:
        if how == "replaced":
            aside.write_bytes(written.read_bytes())
            aside.rename(written)
        else:
            written.rename(aside)
        with pytest.raises(CheckpointError, match="moved, replaced or removed"):
            await store.checkpoints.save(checkpoint())
        with pytest.raises(DeadLetterError, match="moved, replaced or removed"):
            await store.dead_letters.add(letter(), 1)
        if how == "moved":
            aside.rename(written)
            await store.checkpoints.save(checkpoint())


async def test_a_page_that_is_damaged_during_operation_is_an_error(written: Path) -> None:
    async with open_store(written) as store:
        damage(written)
        # Another process writes, so pages that were already read are read again.
        execute(written, f"PRAGMA user_version = {SCHEMA_VERSION}")
        with pytest.raises(CheckpointCorrupt, match=r"the file is damaged.*backup") as caught:
            await store.checkpoints.list()
        assert str(written) in str(caught.value)
        with pytest.raises(DeadLetterError, match="the file is damaged"):
            await store.dead_letters.letters()
