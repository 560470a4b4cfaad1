"""``tailrace verify`` with a real server: sabotaged rows are found, and nothing else differs."""

import bson
import pytest

from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders
from tests.verifying import TABLE, by_hand, differing, verified
from tests.writers import Writers

TARGETS = {"positioned": "mine:Positioned", "without": "mine:Table"}


def following(orders: Orders, *, driver: str, target: str, full_document: str) -> Daemon:
    scope = {"full_document": full_document, "snapshot": "initial"}
    mine = {"mine": {"target": TARGETS[target], "batch_size": 50}}
    http = {"port": free_port()}
    return orders.daemon(driver=driver, scope=scope, targets=mine, source=TABLE, http=http)


def key(number: int) -> bytes:
    return bson.encode({"_id": number})


def is_done(run: Daemon) -> bool:
    snapshot = run.status()["snapshot"]
    return bool(snapshot["state"] == "done") and run.status()["in_flight"]["events"] == 0


@pytest.mark.parametrize(
    ("driver", "target", "full_document"),
    [
        ("motor", "positioned", "lookup"),
        ("pymongo", "positioned", "updateLookup"),
        ("pymongo", "without", "lookup"),
    ],
)
def test_sabotaged_rows_are_found_beside_writers_and_nothing_else(
    orders: Orders, driver: str, target: str, full_document: str
) -> None:
    orders.insert(*range(3000), n=0)
    run = following(orders, driver=driver, target=target, full_document=full_document).start()
    until(lambda: is_done(run), "the snapshot")
    assert verified(run)["equal"] == 3000
    with by_hand(run) as rows:
        rows.execute("DELETE FROM rows WHERE key = ?", (key(2001),))
        rows.execute("UPDATE rows SET n = '0.0' WHERE key = ?", (key(2002),))
        strange = bson.encode({"_id": 2003, "n": 0.0})
        rows.execute("UPDATE rows SET document = ? WHERE key = ?", (strange, key(2003)))
        sql = "INSERT INTO rows SELECT place, ?, document, n FROM rows WHERE key = ?"
        rows.execute(sql, (key(9999), key(2004)))
        rows.execute(sql, (b"?", key(2004)))
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], range(2000), seed=1),
    ):
        found = verified(run)
    number = '{"$numberInt":"%d"}'
    assert differing(found) == [
        ("different", number % 2002, ("n",)),
        ("different", number % 2003, ("document",)),
        ("missing", number % 2001, ()),
        ("too_many", "b'?'", ()),
        ("too_many", number % 9999, ()),
    ]
    assert found["compared"] == sum(
        found[name]
        for name in ("equal", "different", "missing", "too_many", "in_flux", "set_aside")
    )
    assert run.stop() == 0
