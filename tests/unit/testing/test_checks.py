"""The checks pass good handlers, and name the mistake of each bad one."""

from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from tailrace import Batch
from tailrace.testing import GuaranteeBroken, at_least_once, each_change_once
from tests.unit.testing import destinations as of
from tests.unit.testing.destinations import Database

RESTARTS = {"on_failure": "dead_letter"}
"""A failed commit starts the scope again, instead of halting it."""


@pytest.mark.parametrize("what", ["rows", "log"])
async def test_a_handler_that_does_it_right_gets_each_change_once(what: str) -> None:
    database = Database()
    tried = await each_change_once(
        lambda: of.Good(database),
        holds=lambda: getattr(database, what),
        backup=database.backup,
        empty=database.empty,
    )
    assert ("an emptied destination, and a snapshot" in tried) == (what == "rows")
    for fault in (
        "a backup restored before a call",
        "a backup restored in an outage",
        "a backup restored before a start",
        "a snapshot of what was there before",
        "a lost connection in a call, at await 2",
        "an outage at the start",
        "a kill in a call, at await 1",
        "a kill in a call of a snapshot, at await 2",
        "a kill in a call around a drop, at await 1",
        "another process takes over while a call is paused at await 1",
        "another process has begun when a call goes on that was paused at await 2",
    ):
        assert fault in tried


@pytest.mark.parametrize("what", ["rows", "log"])
async def test_faults_of_a_seed_meet_one_another_and_are_the_same_each_time(what: str) -> None:
    runs = []
    for _ in range(2):
        database = Database()
        tried = await each_change_once(
            lambda database=database: of.Good(database),
            holds=lambda database=database: getattr(database, what),
            seeds=range(8),
            drops=True,
        )
        runs.append([fault for fault in tried if fault.startswith("seed")])
    assert len(runs[0]) == 8
    assert runs[0] == runs[1]
    assert any("a kill" in fault and "takes over" in fault for fault in runs[0])


async def test_a_destination_of_messages_may_be_checked_by_their_ids() -> None:
    sent: list[str] = []

    class Sender:
        async def write(self, batch: Batch) -> None:
            sent.extend(message.id for message in batch.messages())

    tried = await at_least_once(Sender, holds=lambda: sent)
    assert "a snapshot of what was there before" in tried


async def test_a_handler_that_commits_is_checked_around_its_commits() -> None:
    database = Database()
    tried = await each_change_once(
        lambda: of.Committing(database),
        holds=lambda: database.log,
        handler=RESTARTS,
        backup=database.backup,
    )
    for fault in (
        "a backup restored before a call",
        "a lost connection before a commit",
        "a lost connection after a commit",
        "a kill in a commit, at await 2",
        "a kill after a commit",
    ):
        assert fault in tried


async def test_a_handler_that_keeps_what_it_accepted_before_a_failure_is_found_out() -> None:
    database = Database()
    with pytest.raises(GuaranteeBroken, match="an error"):
        await each_change_once(
            lambda: of.NothingRolledBack(database), holds=lambda: database.log, handler=RESTARTS
        )


async def test_a_handler_that_does_not_notice_a_restored_backup_is_found_out() -> None:
    database = Database()
    with pytest.raises(GuaranteeBroken, match="only so is a restored destination noticed") as found:
        await each_change_once(
            lambda: of.NothingCompared(database), holds=lambda: database.log, backup=database.backup
        )
    assert found.value.fault == "a backup restored before a call"


@pytest.mark.parametrize("what", ["rows", "log"])
async def test_a_handler_that_applies_drops_is_checked_around_them(what: str) -> None:
    database = Database()
    tried = await each_change_once(
        lambda: of.Good(database), holds=lambda: getattr(database, what), drops=True
    )
    assert "a kill after on_ddl" in tried


@pytest.mark.parametrize(
    ("mistake", "what", "fault", "named"),
    [
        (of.DeletesIgnored, "rows", "a snapshot|changes without a fault", "Apply deletes"),
        (of.Unordered, "log", "without a fault", "not with gather"),
        (of.PositionApart, "log", "in a call", "in one transaction"),
        (of.PositionFirst, "log", "in a call", "Raise every error|never before it"),
        (of.ErrorsSwallowed, "log", "a lost connection", "Raise every error"),
        (of.Buffering, "log", "snapshot|without a fault", "without any fault"),
        (of.NothingCompared, "log", "another process", "Compare the stored text with batch.former"),
        (of.EpochOnly, "log", "another process", "The epoch alone does not stop"),
    ],
)
async def test_a_mistake_is_named(mistake: Any, what: str, fault: str, named: str) -> None:
    database = Database()
    with pytest.raises(GuaranteeBroken, match=fault) as found:
        await each_change_once(lambda: mistake(database), holds=lambda: getattr(database, what))
    assert any(each in str(found.value) for each in named.split("|"))


async def test_the_jsonl_handler_gets_each_change_at_least_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    def holds() -> list[Any]:
        return [json_util.loads(line)["_id"] for line in path.read_text().splitlines()]

    await at_least_once({"type": "jsonl", "path": path, "fsync": False}, holds=holds)


@pytest.mark.parametrize(("handler", "what"), [(of.of_events, "log"), (of.of_batches, "rows")])
async def test_a_handler_without_a_position_gets_each_change_at_least_once(
    handler: Any, what: str
) -> None:
    database = Database()
    await at_least_once(
        handler(database), holds=lambda: getattr(database, what), seeds=range(100, 110)
    )


@pytest.mark.parametrize(
    ("mistake", "fault", "named"),
    [
        (of.at_once, "without a fault", "not with gather"),
        (of.forgetful, "an error in a call", "Raise every error"),
    ],
)
async def test_a_mistake_at_least_once_is_named(mistake: Any, fault: str, named: str) -> None:
    database = Database()
    with pytest.raises(GuaranteeBroken, match=fault) as found:
        await at_least_once(mistake(database), holds=lambda: database.log)
    assert named in str(found.value)
