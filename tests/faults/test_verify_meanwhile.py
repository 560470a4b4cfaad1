"""A verification on three real members while collections are renamed, dropped and made again, the
primary steps down, and operators move the scope: nothing of that is a difference."""

import json
from datetime import UTC, datetime

import pytest

from tests.daemon import Make, until
from tests.integration.test_verify import is_done, shown
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.verifying import TABLE, verified


@pytest.fixture
def orders(replica_set: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(replica_set, database, daemon)


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_moves_drops_elections_and_seeks_make_no_difference(orders: Orders, driver: str) -> None:
    names = ("kept", "moved", "dropped", "replaced")
    for name in names:
        orders.insert(*range(200), collection=name, n=0)
    scope = {"name": "orders", "database": orders.database, "max_await_time_ms": 200}
    run = orders.daemon(
        driver=driver,
        targets={"mine": {"target": "mine:Positioned", "batch_size": 200}},
        source=TABLE,
        http={"port": free_port()},
        scopes=[{**scope, "full_document": "lookup", "snapshot": "initial"}],
    ).start()
    until(lambda: is_done(run), "the snapshot")
    begun = datetime.now(UTC)
    with orders.server.client() as client:
        database = client[orders.database]
        database.kept.update_many({}, {"$inc": {"n": 1}})
        with run.begun("verify", "orders", "--json", "--documents-per-second", "100") as command:
            until(lambda: shown(run)["compared"] > 20, "the first documents")
            database.moved.rename("elsewhere")
            database.dropped.drop()
            database.replaced.drop()
            database.replaced.insert_many([{"_id": n, "n": "again"} for n in range(100, 300)])
            orders.server.step_down()
            database.kept.update_many({"_id": {"$lt": 100}}, {"$inc": {"n": 1}})
            run.command("scopes", "seek", "orders", "--at", begun.isoformat())
            run.command("snapshot", "start", "orders")
            output, errors = command.communicate(120)
            assert command.returncode == 0, errors
    found = json.loads(output)
    assert (found["keys"], found["state"]) == ([], "done")
    collections = found["collections"]
    counts = {name.split(".")[1]: one["equal"] for name, one in collections.items()}
    assert (counts["kept"], counts["elsewhere"], counts["replaced"]) == (200, 200, 200)
    assert verified(run)["equal"] == 600
    assert run.stop() == 0
