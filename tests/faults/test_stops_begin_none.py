"""A hand-over and a restart of a scope finish the calls that run, begin none, and repeat nothing.

``test_drain`` has the stop of the process.
"""

from collections import Counter

from pymongo import InsertOne, UpdateOne

from tailrace.observe.health_check import request
from tests.daemon import until
from tests.orders import Orders
from tests.replicas import STEADY_SECONDS, Replicas

LAST_SAVE_ONLY = {"interval_seconds": 3600}
"""So long that only the final save is there at the next start."""
CHANGES = 200
CALLS = 60
"""Of 0.1 s each: they take twice the grace period."""
SOURCE = """
import anyio

from tailrace import PermanentError


def note(where, event):
    with open(where, "a") as file:
        file.write(f"{number(event)}\\n")


def number(event):
    if event.operation_type == "update":
        return event.update_description["updatedFields"]["n"]
    return event.full_document["n"]


async def a_tenth(event):
    note("begun", event)
    await anyio.sleep(0.1)
    note("ended", event)


async def fails_once(event):
    if number(event) == 1 and not await anyio.Path("fixed").exists():
        raise PermanentError("not fixed")
    note("others", event)
"""


def of_one_document(orders: Orders) -> None:
    """Every second change belongs to one document, the others to a document each."""
    with orders.server.client() as client:
        client[orders.database].orders.bulk_write(
            [
                UpdateOne({"_id": "hot"}, {"$set": {"n": n}}, upsert=True)
                if n % 2
                else InsertOne({"_id": n, "n": n})
                for n in range(CHANGES)
            ]
        )


def test_a_handler_that_halts_and_is_restarted_keeps_and_repeats_no_call_of_another_one(
    orders: Orders,
) -> None:
    run = orders.daemon(
        targets={name: {"target": f"mine:{name}"} for name in ("fails_once", "a_tenth")},
        source=SOURCE,
        checkpoint=LAST_SAVE_ONLY,
        delivery={"on_failure": "halt"},
    )
    run.start()
    of_one_document(orders)
    halted = lambda: run.status()["handlers"]["fails_once"]["state"] == "halted"  # noqa: E731
    until(halted, "the halt", 10)
    assert len([n for n in run.numbers("begun") if n % 2]) < CHANGES // 4, "of the one document"
    until(lambda: len(run.numbers("ended")) >= CHANGES, "all changes for the other handler")
    assert halted()
    (run.directory / "fixed").touch()
    assert request("127.0.0.1", run.port, "/scopes/orders/restart", method="POST")[0] == 202
    until(lambda: len(run.numbers("others")) >= CHANGES, "all changes")
    assert run.stop() == 0, run.log
    for where in ("begun", "others"):
        assert Counter(run.numbers(where)) == Counter(range(CHANGES))


SCOPES = [f"scope-{number}" for number in range(4)]
SLOW_NOTES = """
import os

import anyio


async def note(event, scope, epoch):
    with open(os.environ["SHARED"], "a") as file:
        n = (event.full_document or event.update_description["updatedFields"])["n"]
        file.write(f"{scope} {epoch} {os.environ['NAME']} {n}\\n")
    await anyio.sleep(0.1)
"""


class Slow(Replicas):
    """Handlers that take 0.1 s."""

    source = SLOW_NOTES


def test_a_hand_over_begins_no_call_and_the_next_owner_repeats_none(orders: Orders) -> None:
    """One document has changes for longer than the grace period."""
    replicas = Slow(orders, lease=STEADY_SECONDS)
    grace = {"grace_seconds": 3}
    one, two = (replicas.daemon(name, shutdown=grace) for name in ("one", "two"))
    for run in (one, two):
        run.configuration |= replicas.following(*SCOPES)
        run.start()
    with orders.server.client() as client:
        for scope in SCOPES:
            client[orders.database][scope].bulk_write(
                [UpdateOne({"_id": "hot"}, {"$set": {"n": n}}, upsert=True) for n in range(CALLS)]
            )
    moved = SCOPES[::2]
    for scope in moved:
        replicas.until_noted(0, scope)
        replicas.request(scope, two)
    for scope in SCOPES:
        replicas.until_noted(CALLS - 1, scope)
        noted = [each for each in replicas.noted if each.scope == scope]
        assert [each.number for each in noted] == list(range(CALLS)), (one.log, two.log)
        assert {each.process for each in noted} == ({"one", "two"} if scope in moved else {"one"})
    assert sorted(each["scope"] for each in one.logged("lease.handed_over")) == moved
    assert not one.logged("scope.not_drained")
    replicas.stop()
