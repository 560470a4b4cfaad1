"""``tailrace verify`` of MongoDB, Redis and Kafka beside writers. PostgreSQL: test_verify.py."""

from collections.abc import Mapping
from typing import Any

import pytest
from bson import Decimal128, Int64

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
        for key, alike in ((2004, 0.0), (2005, Int64(0)), (2006, Decimal128("0"))):
            copies.update_one({"_id": key}, {"$set": {"n": alike}})
        copies.update_one({"_id": 2007}, {"$set": {"zero": -0.0}})


def damage_keys(of: Any) -> None:
    with of.server.client() as client:
        for name in of.keys:
            if '"2001"' in name:
                client.set(name, client.get(name).replace('"n":0', '"n":9'))
            elif '"2002"' in name:
                client.delete(name)
            elif '"2003"' in name:
                client.set(name.replace("2003", "999999"), "{}")
            elif '"2004"' in name:
                client.set(name, client.get(name).replace('"n":0', '"n":0.0'))


def damage_messages(of: Any) -> None:
    last = {message.key(): message.value() for message in of.messages()}
    for key, value in last.items():
        if b'"2001"' in key:
            of.send(key, value.replace(b'"n":0', b'"n":9'))
        elif b'"2002"' in key:
            of.send(key, None)
        elif b'"2003"' in key:
            of.send(key.replace(b"2003", b"999999"), value)


BY_ITSELF, FROM_BEGINNING = (), ("--handler", "copy", "--from-beginning")
DAMAGE = {
    "mongodb": (
        damage_copies,
        {2001: "n", 2004: "n", 2005: "n", 2006: "n", 2007: "zero"},
        "pymongo",
        BY_ITSELF,
    ),
    "redis": (damage_keys, {2001: "value.n", 2004: "value.n"}, "motor", BY_ITSELF),
    "kafka_once": (damage_messages, {2001: "n"}, "pymongo", FROM_BEGINNING),
}
"""By type what damages rows, by key the field that differs then, the driver and the options."""


@pytest.mark.parametrize("kind", DAMAGE, scope="session")
def test_damaged_rows_are_found_beside_writers_and_nothing_else(
    orders: Orders, destination: Destination, kind: str
) -> None:
    damage, fields, driver, options = DAMAGE[kind]
    orders.insert(*range(2100), n=0, zero=0.0)
    given: Mapping[str, Any] = {"snapshot": "initial", "full_document": "lookup"}
    run = following(
        orders, destination, scope=given, driver=driver, http={"port": free_port()}
    ).start()
    until(lambda: is_copied(run), "the snapshot")
    if options:
        code, errors = run.refused("verify", "orders")
        assert (code, "--from-beginning" in errors) == (2, True), errors
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], HOT, seed=1, pause=0.01, behind=run.is_behind),
    ):
        found = verified(run, *options)
        assert found["keys"] == []
        assert found["in_flux"] == 0
        assert found["equal"] >= 1000
    damage(destination)
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], HOT, seed=2, pause=0.01, behind=run.is_behind),
    ):
        *different, missing, strange = differing(verified(run, *options))
        number = '{"$numberInt":"%d"}'
        expected = [("different", number % key, (field,)) for key, field in fields.items()]
        assert different == expected
        assert [missing[:2], strange[0]] == [("missing", number % 2002), "too_many"]
        found = verified(run, "--repair", *options)
        assert [found["keys"], found["repairs"][0]["keys"]] == [[], len(fields) + 2]
    assert run.stop() == 0


def is_copied(run: Daemon) -> bool:
    status = run.status()
    return bool(status["snapshot"]["state"] == "done") and status["in_flight"]["events"] == 0
