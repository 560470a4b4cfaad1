"""``tailrace scopes`` while processes share a scope, and when none runs any more."""

from tests.daemon import until
from tests.orders import Orders
from tests.replicas import Replicas


def test_scopes_names_the_owner_and_then_nobody(orders: Orders) -> None:
    replicas = Replicas(orders)
    one, two = replicas.start("one", "two")
    replicas.until_owner(one)
    orders.insert(0)
    until(lambda: one.status()["checkpoint"]["sequence"] > 0, "a save")
    until(lambda: two.status()["state"] == "standby", "the other")
    lines = [line.split() for line in two.command("scopes").splitlines()]
    assert lines[1][:3] == ["orders", "one", "1"]
    assert all(cell[:4].isdigit() and cell.endswith("Z") for cell in lines[1][3:5]), lines[1]
    assert [line[:2] for line in lines[4:]] == [["one", "1"], ["two", "0"]]

    one.kill()
    replicas.until_owner(two)
    assert two.command("scopes").splitlines()[1].split()[:3] == ["orders", "two", "2"]
    assert two.stop() == 0
    printed = two.command("scopes").splitlines()
    assert printed[1].split()[:4] == ["orders", "nobody", "2", "-"]
