"""What destinations do with the rows of a snapshot of a real server, beside changes."""

import pytest

from tests.daemon import Daemon, until
from tests.destinations.copying import (
    Copying,
    assert_untroubled,
    key_of,
    until_waiting,
)

WITHOUT_DELETES = [{"$match": {"operationType": {"$ne": "delete"}}}]


def snapshot_done(run: Daemon, times: int) -> None:
    until(lambda: len(run.logged("snapshot.done")) == times, "the end of the snapshot")


# A sweep in a transaction, and one without. Snapshots of all: test_contract.py.
@pytest.mark.parametrize("kind", ["postgresql", "redis"], scope="session")
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
    copied.until_equal()
    assert_untroubled(run)


@pytest.mark.parametrize("kind", ["postgresql", "nats", "kafka_once"], scope="session")
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
