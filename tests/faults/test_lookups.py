"""The same changes through ``lookup`` and ``updateLookup``, on three members, with faults.

The daemon and the primary are killed, and elections are held.
"""

import signal
from typing import Any

import pytest

from tests.daemon import Daemon, Make, files, until
from tests.faults import lookup_account
from tests.faults.lookup_account import Changes
from tests.load import Load
from tests.mongod import ReplicaSet
from tests.orders import Orders

WAYS = {"ours": "lookup", "theirs": "updateLookup"}


@pytest.fixture
def orders(replica_set: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(replica_set, database, daemon)


def has_ended(run: Daemon, name: str) -> bool:
    path = run.directory / f"{name}.jsonl"
    return f'"coll":"{lookup_account.END}"' in path.read_text().replace(" ", "")


@pytest.mark.parametrize(
    ("driver", "scope"),
    [
        ("motor", {"read_preference": "primaryPreferred"}),
        ("pymongo", {"read_preference": "secondary", "batch_size": 5}),
    ],
)
def test_looked_up_documents_existed_and_end_as_the_source(
    orders: Orders, driver: str, scope: dict[str, Any]
) -> None:
    both = {"database": orders.database, "max_await_time_ms": 200, **scope}
    scopes = [{"name": name, "full_document": way, **both} for name, way in WAYS.items()]
    run = orders.daemon(driver=driver, scopes=scopes, **files(*WAYS)).start()
    with orders.server.client(retryWrites=False, w="majority") as client:
        changes = Changes(client, orders.database, seed=len(driver))
        with Load(changes.write, every_seconds=0.002) as load:
            load.more(120)
            orders.server.step_down()
            load.more(80)
            run.kill()
            load.more(50)
            run.start()
            orders.server.stop_member(orders.server.primary(), signal.SIGKILL)
            load.more(80)
            orders.server.start()
            run.kill()
            run.start()
            load.more(80)
        client[orders.database][lookup_account.END].insert_one({"_id": 0, "n": -1})
        for name in WAYS:
            until(lambda name=name: has_ended(run, name), "the last change")
        assert run.stop() == 0, run.log
        wanted = lookup_account.source(client, orders.database)
    ours, theirs = (lookup_account.read(run.directory / f"{name}.jsonl") for name in WAYS)
    assert lookup_account.outline(ours) == lookup_account.outline(theirs)
    for events in (ours, theirs):
        lookup_account.assert_true(events, changes.keys)
        assert lookup_account.fold(events) == wanted
