"""Elections of the replica set that holds both the source and the leases."""

import pytest

from tests.daemon import Make
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import Replicas


@pytest.fixture
def replicas(replica_set: ReplicaSet, database: str, daemon: Make) -> Replicas:
    return Replicas(Orders(replica_set, database, daemon))


def test_elections_while_renewing_and_while_acquiring(
    replicas: Replicas, replica_set: ReplicaSet
) -> None:
    replicas.start("one", "two", "three")
    with replicas.orders.load() as load:
        for acquiring in (False, True, False, True):
            owner = replicas.until_owner()
            load.more()
            replicas.until_noted(load.written)
            if acquiring:
                owner.kill()
            replica_set.step_down()
            load.more()
            if acquiring:
                owner.start()
        replicas.until_owner()
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    replicas.stop()
