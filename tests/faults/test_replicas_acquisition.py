"""A process is stopped while the server has not yet answered its acquisition of a lease."""

from tests.daemon import Make, until
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import Replicas


def test_a_lease_is_free_after_a_stop_although_the_server_acquires_it_late(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    replicas = Replicas(Orders(mongod, database, daemon), lease=60)
    leases = f"{replicas.store['database']}.leases"

    def late() -> bool:
        with mongod.client() as client:
            running = client.admin.aggregate([{"$currentOp": {}}])
            return any(each["command"].get("findAndModify") == "leases" for each in running)

    mongod.fail("findAndModify", namespace=leases, blockConnection=True, blockTimeMS=8_000)
    one = replicas.daemon("one").start(ready=False).until_answers()
    until(late, "the acquisition")
    one.signal()
    assert one.wait() == 0, one.log
    assert late()
    (left,) = one.logged("lease.released")
    until(lambda: not late(), "the end of the acquisition")
    (lease,) = (each for each in replicas.documents if each["_id"] == "orders")
    assert (lease["owner"], lease["epoch"]) == ("", left["epoch"])
    (two,) = replicas.start("two")
    replicas.until_owner(two)
    replicas.stop()
