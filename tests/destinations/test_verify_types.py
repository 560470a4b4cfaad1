"""``tailrace verify`` of MongoDB and Redis beside writers. PostgreSQL: test_verify.py."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.destinations.copies import following
from tests.destinations.destination import Destination
from tests.machine import free_port
from tests.orders import Orders
from tests.verifying import differing, verified
from tests.writers import Writers

HOT = range(1000)
"""The ids of documents that the writers change."""


def damage_copies(of: Any) -> None:
    with of.client() as client:
        copies = client[of.database].orders
        copies.update_one({"_id": 2001}, {"$set": {"n": 9}})
        copies.delete_one({"_id": 2002})
        copies.insert_one({"_id": "more"})


def damage_keys(of: Any) -> None:
    with of.server.client() as client:
        for name in of.keys:
            if '"2001"' in name:
                client.set(name, '{"_id":2001,"n":9}')
            elif '"2002"' in name:
                client.delete(name)
            elif '"2003"' in name:
                client.set(name.replace("2003", "999999"), "{}")


DAMAGE = {
    "mongodb": (damage_copies, "n", "pymongo"),
    "redis": (damage_keys, "value.n", "motor"),
}
"""By type what damages rows, the field that differs then, and the driver."""


@pytest.mark.parametrize("kind", DAMAGE, scope="session")
def test_damaged_rows_are_found_beside_writers_and_nothing_else(
    orders: Orders, destination: Destination, kind: str
) -> None:
    damage, field, driver = DAMAGE[kind]
    orders.insert(*range(2100), n=0)
    given: Mapping[str, Any] = {"snapshot": "initial", "full_document": "lookup"}
    run = following(
        orders, destination, scope=given, driver=driver, http={"port": free_port()}
    ).start()
    until(lambda: is_copied(run), "the snapshot")
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], HOT, seed=1),
    ):
        found = verified(run)
        assert found["keys"] == []
        assert found["in_flux"] == 0
        assert found["equal"] >= 1000
    damage(destination)
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], HOT, seed=2),
    ):
        found = verified(run)
    differences = differing(found)
    assert [(what, fields) for what, _, fields in differences] == [
        ("different", (field,)),
        ("missing", ()),
        ("too_many", ()),
    ]
    assert ["2001" in differences[0][1], "2002" in differences[1][1]] == [True, True]
    assert run.stop() == 0


def is_copied(run: Daemon) -> bool:
    status = run.status()
    return bool(status["snapshot"]["state"] == "done") and status["in_flight"]["events"] == 0


@contextmanager
def writing(orders: Orders, seed: int) -> Iterator[None]:
    """Two writers, at a rate that every destination follows."""
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], HOT, seed, pause=0.005),
    ):
        yield
