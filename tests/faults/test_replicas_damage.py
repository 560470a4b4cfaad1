"""A damaged lease in the store halts its scope, and no other one."""

from tests.daemon import Make, until
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import Replicas


def test_a_damaged_lease_halts_only_its_scope_until_it_is_repaired(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    replicas = Replicas(Orders(mongod, database, daemon))
    one = replicas.daemon("one")
    one.configuration |= replicas.following("left", "right")
    one.start()
    for scope in ("left", "right"):
        replicas.until_owner(one, scope=scope)
    with mongod.client() as client:
        leases = client[replicas.store["database"]].leases
        leases.update_one({"_id": "left"}, {"$set": {"until": "soon"}})
        until(lambda: one.status("left")["state"] == "halted", "the halt")
        (halted,) = one.logged("scope.halted")
        assert halted["scope"] == "left"
        assert "document 'left': the lease cannot be read: its until is not" in halted["error"]
        assert "scope left: halted" in one.get("/readyz")[1]
        replicas.orders.insert(0, collection="right")
        replicas.until_noted(0, "right")
        assert "unreadable" in one.command("scopes")
        leases.delete_one({"_id": "left"})
    replicas.until_owner(one, scope="left")
    replicas.orders.insert(0, collection="left")
    replicas.until_noted(0, "left")
    assert one.stop() == 0, one.log
    assert "Traceback" not in one.log
