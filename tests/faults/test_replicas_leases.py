"""Leases and members in the store: a lease acquired late, a damaged one, and a name used twice."""

from tests.daemon import until
from tests.mongod.operations import operations
from tests.orders import Orders
from tests.replicas import Replicas


def test_a_lease_is_free_after_a_stop_although_the_server_acquires_it_late(orders: Orders) -> None:
    """The process is stopped while the server has not answered its acquisition yet."""
    replicas = Replicas(orders, lease=60)
    leases = f"{replicas.store['database']}.leases"

    def late() -> bool:
        with orders.server.client() as client:
            return bool(operations(client, {"command.findAndModify": "leases"}))

    held = {"blockConnection": True, "blockTimeMS": 8_000}
    orders.server.fail("findAndModify", namespace=leases, **held)
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


def test_a_damaged_lease_halts_only_its_scope_until_it_is_repaired(orders: Orders) -> None:
    replicas = Replicas(orders)
    one = replicas.daemon("one")
    one.configuration |= replicas.following("left", "right")
    one.start()
    for scope in ("left", "right"):
        replicas.until_owner(one, scope=scope)
    with orders.server.client() as client:
        leases = client[replicas.store["database"]].leases
        leases.update_one({"_id": "left"}, {"$set": {"until": "soon"}})
        until(lambda: one.status("left")["state"] == "halted", "the halt")
        (halted,) = until(lambda: one.logged("scope.halted"), "its line")
        assert halted["scope"] == "left"
        assert "document 'left': the lease cannot be read: its until is not" in halted["error"]
        assert "scope left: halted" in one.get("/readyz")[1]
        orders.insert(0, collection="right")
        replicas.until_noted(0, "right")
        assert "unreadable" in one.command("scopes")
        leases.delete_one({"_id": "left"})
    replicas.until_owner(one, scope="left")
    orders.insert(0, collection="left")
    replicas.until_noted(0, "left")
    assert one.stop() == 0, one.log
    assert "Traceback" not in one.log


def test_a_second_daemon_of_a_name_is_refused_and_starts_after_a_crash_of_the_first(
    orders: Orders,
) -> None:
    """The first one keeps its scope meanwhile."""
    replicas = Replicas(orders)
    (first,) = replicas.start("west")
    owner = replicas.until_owner(first)
    second = replicas.daemon("other")
    second.configuration["replicas"]["name"] = "west"
    second.start(ready=False)
    assert second.wait() == 1
    (refused,) = second.logged("service.refused")
    assert "another process is alive under the name 'west', on host " in refused["reason"]
    assert replicas.owners() == [owner]
    first.kill()
    second.start()
    replicas.until_owner(second)
    assert second.stop() == 0
