"""A handler call hangs while its server restarts: changes of other documents continue."""

import signal
from collections import Counter

from tests.daemon import Make, until
from tests.faults.odd import Odd
from tests.mongod import ReplicaSet
from tests.orders import Orders

WAITS = "waits for a call of handler 'hangs_at_three' on {\"_id\": 3} since "


def test_other_documents_continue_over_a_server_restart(
    mortal: ReplicaSet, database: str, daemon: Make
) -> None:
    """The store is on that server too: the save is retried, and the checkpoint gets older."""
    orders = Orders(mortal, database, daemon)
    orders.uri += "&serverSelectionTimeoutMS=1000"
    odd = Odd(orders, "hangs_at_three")
    run = odd.run
    run.configuration["store"] = {"type": "mongodb", "database": database}
    run.start()
    odd.insert(*range(6))
    until(lambda: set(odd.noted("ended")) == {0, 1, 2, 4, 5}, "all but the one that hangs")

    mortal.stop(signal.SIGKILL)
    until(lambda: run.logged("stream.reopening"), "that the stream is opened again")
    state = run.status()
    assert (state["state"], bool(state["reason"])) in {("backing_off", True), ("starting", False)}
    assert run.logged("stream.reopening")[0]["handlers"].startswith(WAITS)
    mortal.start()
    odd.insert(*range(10, 20))
    with mortal.client() as client:
        client[database].orders.update_one({"_id": 3}, {"$set": {"state": "paid"}})
    odd.until_noted("ended", *range(10, 20))
    assert odd.noted("begun").count(3) == 1, "never two attempts, nor the next of its document"
    assert run.get("/readyz")[0] == 200

    run.signal()
    until(lambda: run.status().get("state") == "draining", "the drain")
    assert run.status()["reason"].startswith(WAITS)
    odd.open()
    assert run.wait() == 0, run.log
    assert odd.noted("ended").count(3) in (1, 2)
    run.start()
    until(lambda: odd.noted("ended").count(3) == 2, "the update of what hung")
    odd.ends_well()
    assert Counter(odd.noted("ended")) == dict.fromkeys((*range(6), *range(10, 20)), 1) | {3: 2}
