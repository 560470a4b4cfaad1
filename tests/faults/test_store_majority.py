"""A store in MongoDB, and a save that is on the primary but not confirmed by a majority.

Its outcome is unknown, but the process recognises its own save and is not fenced by it.
"""

from typing import Any

import pytest
from pymongo import AsyncMongoClient

from tailrace.errors import CheckpointError
from tailrace.stores.mongodb import open_store
from tests.contract.stores import Runner, checkpoint
from tests.daemon import Make, gated, until
from tests.mongod import ReplicaSet
from tests.orders import Orders


@pytest.fixture
def orders(replica_set: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(replica_set, database, daemon)


class Unconfirmed:
    """A daemon whose last save is only on the primary, because replication has stopped."""

    def __init__(self, orders: Orders) -> None:
        self.insert = orders.insert
        self.replica_set, self.database = orders.server, orders.database
        self.run = orders.daemon(store={"type": "mongodb", "database": orders.database})
        open_gate = gated(self.run)
        open_gate()
        self.run.start()
        self.insert(0)
        until(lambda: self.stored("local") == self.stored("majority") and self.handled, "a save")
        (self.run.directory / "open").unlink()
        self.insert(1)
        until(lambda: self.run.status()["in_flight"]["events"] == 1, "the event")
        self.stopped = self.replica_set.secondaries()
        for member in self.stopped:
            self.replica_set.fail_point("stopReplProducer", "alwaysOn", member=member)
        open_gate()
        until(lambda: self.stored("local") != self.stored("majority"), "a save of the primary")

    @property
    def handled(self) -> list[int]:
        return self.run.numbers("handled")

    @property
    def saved(self) -> bool:
        status = self.run.status()
        checkpoint = status.get("checkpoint")
        return bool(
            checkpoint
            and checkpoint["token"] == status["position"]["token"]
            and status["in_flight"]["events"] == 0
        )

    def stored(self, level: str) -> Any:
        """The scope's record, read with a read concern."""
        with self.replica_set.client() as client:
            find = {"find": "checkpoints", "readConcern": {"level": level}}
            found = client[self.database].command(find)["cursor"]["firstBatch"]
        return [(record["epoch"], record["sequence"]) for record in found]

    def replicate(self) -> None:
        for member in self.stopped:
            self.replica_set.fail_point("stopReplProducer", "off", member=member)

    def assert_goes_on(self) -> None:
        """Changes are handled and saved again, no process was fenced, and the stop is clean."""
        self.replica_set.primary()
        self.insert(2)
        until(lambda: 2 in self.handled or self.run.logged("scope.halted"), "the next change")
        until(lambda: self.saved or self.run.logged("scope.halted"), "its position")
        assert not self.run.logged("scope.halted")
        assert self.run.stop() == 0, self.run.log


def step_down_at_once(replica_set: ReplicaSet) -> None:
    """Steps down without waiting for the secondaries."""
    with replica_set.direct(replica_set.primary()) as client:
        client.admin.command({"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 0, "force": True})


@pytest.mark.parametrize("steps_down", [False, True], ids=["write concern", "step-down"])
def test_a_save_without_a_majority_is_repeated(orders: Orders, steps_down: bool) -> None:
    """The write concern times out, or the primary steps down first."""
    each = Unconfirmed(orders)
    if steps_down:
        step_down_at_once(orders.server)
    until(lambda: each.run.logged("checkpoint.save_failed"), "the failure of the save")
    if not steps_down:
        assert "not a majority" in each.run.logged("checkpoint.save_failed")[0]["error"]
    each.replicate()
    each.assert_goes_on()


async def test_a_load_fails_until_a_majority_has_the_record(
    replica_set: ReplicaSet, database: str
) -> None:
    """Otherwise the next process would take the epoch of the write without a majority."""
    stopped = replica_set.secondaries()
    async with AsyncMongoClient(replica_set.uri) as client:
        runner = Runner(client)
        async with open_store(runner, database=database, timeout_ms=500) as opened:
            store = opened.checkpoints
            for member in stopped:
                replica_set.fail_point("stopReplProducer", "alwaysOn", member=member)
            with pytest.raises(CheckpointError, match="not a majority"):
                await store.save(checkpoint())
            with pytest.raises(CheckpointError, match="scope 'orders'"):
                await store.load("orders")
            for member in stopped:
                replica_set.fail_point("stopReplProducer", "off", member=member)
        async with open_store(runner, database=database) as opened:
            assert await opened.checkpoints.load("orders") == checkpoint()


@pytest.mark.parametrize("rolled_back", [False, True], ids=["kept", "rolled back"])
def test_a_process_that_is_killed_before_its_save_has_a_majority(
    orders: Orders, rolled_back: bool
) -> None:
    """The next process waits for a majority, and continues from the majority's record."""
    each = Unconfirmed(orders)
    each.run.kill()
    if rolled_back:
        step_down_at_once(orders.server)
    each.run.start(ready=False)
    each.replicate()
    orders.server.primary()
    each.run.until_ready()
    each.assert_goes_on()
