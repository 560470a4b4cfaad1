"""Operators' commands while processes share the scopes."""

from datetime import UTC, datetime

import pytest

from tailrace.observe.health_check import request
from tests.daemon import until
from tests.replicas import STEADY_SECONDS, Replicas


@pytest.mark.parametrize("replicas", ["sqlite", "mongodb"], indirect=True)
def test_a_scope_continues_by_itself_after_a_reset(replicas: Replicas) -> None:
    replicas.lease = STEADY_SECONDS
    since = datetime.now(UTC).isoformat()
    scope = {"start_at": since}
    one, other = replicas.start("one", "other", scope=scope)
    replicas.orders.insert(0, 1)
    replicas.until_noted(1)
    owner = replicas.until_owner()
    until(lambda: owner.status()["in_flight"]["events"] == 0, "the handling")
    before = owner.status()["lease"]["epoch"]
    owner.command("checkpoints", "reset", "orders")
    replicas.orders.insert(2)
    until(lambda: [each.number for each in replicas.noted].count(0) == 2, "all again")
    replicas.until_noted(2)
    assert replicas.until_owner().status()["lease"]["epoch"] > before + 1
    assert owner.logged("scope.fenced")
    assert not [*one.logged("scope.halted"), *other.logged("scope.halted")]
    replicas.stop()


@pytest.mark.parametrize("replicas", ["mongodb"], indirect=True)
def test_a_scope_that_halted_keeps_its_lease_until_it_is_restarted(replicas: Replicas) -> None:
    """It would halt elsewhere too. The other processes name the owner."""
    replicas.lease = STEADY_SECONDS
    one = replicas.daemon("one", delivery={"on_failure": "halt", "retry": {"attempts": 1}})
    one.configuration["scopes"].append(replicas.orders.scope(name="users", collection="users"))
    one.configuration["routes"].append({"scope": "users", "handlers": ["note"]})
    one.start()
    other = replicas.daemon("other")
    other.configuration = {**one.configuration, "replicas": other.configuration["replicas"]}
    other.start()
    replicas.until_owner(one)
    replicas.orders.insert(0, poison=True)
    until(lambda: one.status()["state"] == "halted", "the halt")
    assert other.status()["reason"] == "one follows it"
    assert replicas.owners() == [one]
    assert request("127.0.0.1", one.port, "/scopes/orders/restart", method="POST")[0] == 202
    until(lambda: len([*one.logged("scope.halted"), *other.logged("scope.halted")]) > 1, "again")
    assert one.stop() == 0, one.log
    until(lambda: other.status("users")["lease"]["held"], "the takeover")
