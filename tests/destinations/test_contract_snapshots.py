"""What every destination does with the rows of a snapshot, beside changes."""

from functools import partial
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.destinations.copying import (
    Copying,
    assert_untroubled,
    key_of,
    until_same,
    until_waiting,
)

ONLY_INSERTS = [{"$match": {"operationType": "insert"}}]
WITHOUT_DELETES = [{"$match": {"operationType": {"$ne": "delete"}}}]


def snapshot_done(run: Daemon, times: int) -> None:
    until(lambda: len(run.logged("snapshot.done")) == times, "the end of the snapshot")


def test_a_snapshot_beside_changes_gives_the_source_and_removes_what_is_gone(
    copied: Copying,
) -> None:
    """The stream does not show the deletes, so that only the second snapshot can find them."""
    copied.insert(range(200))
    chunks = {"mode": "initial", "chunk_documents": 20}
    run = copied.daemon(scope={"snapshot": chunks, "pipeline": WITHOUT_DELETES}).start()
    with copied.load() as load:
        snapshot_done(run, 1)
        load.more(20)
    copied.until_equal()
    copied.collection.delete_many({"_id": {"$gte": 150}})
    copied.insert([500])
    copied.until_has(500)
    assert key_of(199) in copied.documents
    with copied.load() as load:
        run.command("snapshot", "start", "orders")
        snapshot_done(run, 2)
        load.more(20)
    if copied.destination.sent() is None:
        copied.until_equal()
    else:
        source = copied.source

        def same() -> dict[str, Any]:
            return {key: each for key, each in copied.documents.items() if key in source}

        until_same(same, source)
    assert_untroubled(run)


# Those that refuse a document and keep the last state of each.
@pytest.mark.parametrize("kind", ["postgresql", "mongodb"], scope="session")
def test_the_older_state_of_a_document_stays_if_its_row_becomes_a_dead_letter(
    copied: Copying,
) -> None:
    """Also in a later snapshot, whose row waits after that letter. What is gone is removed."""
    handler = {"on_failure": "dead_letter"}
    run = copied.daemon(handler=handler, scope={"pipeline": ONLY_INSERTS}).start()
    copied.insert([1, 2, 3])
    copied.until_has(1, 2, 3)
    copied.collection.update_one({"_id": 1}, {"$set": copied.destination.refused})
    copied.collection.delete_one({"_id": 2})
    for times in (1, 2):
        run.command("snapshot", "start", "orders")
        snapshot_done(run, times)
        copied.insert([10 + times])
        copied.until_has(10 + times)
    letters = partial(run.metric, "tailrace_dead_letters_waiting", handler="it")
    until(lambda: letters() == 2, "the rows of two snapshots")
    assert copied.documents == {**copied.source, key_of(1): {"_id": 1, "n": 0}}
    assert len(run.logged("event.dead_lettered")) == 1
    assert run.stop() == 0, run.log


def test_an_outage_during_a_snapshot_loses_no_row(logged: Copying) -> None:
    logged.insert(range(500))
    chunks = {"mode": "initial", "chunk_documents": 20}
    run = logged.daemon(scope={"snapshot": chunks}).start()
    logged.destination.stop()
    until_waiting(run)
    logged.count(range(20))
    logged.destination.start()
    logged.until_equal()
    if logged.destination.once:
        rows = [each.key for each in logged.sent if each.operation == "read"]
        assert len(rows) == len(set(rows)) == 500
    assert_untroubled(run)
