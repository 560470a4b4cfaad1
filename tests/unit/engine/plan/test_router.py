"""Which handlers want which events."""

from typing import Any

import pytest

from tailrace.engine.plan.router import Routed, routed
from tailrace.event import ChangeEvent
from tailrace.model import Route
from tests.handlers import handler
from tests.unit.engine.changes import change, ddl, invalidate


async def accept(event: ChangeEvent) -> None:
    pass


HANDLERS = {name: handler(name, accept) for name in ("audit", "lake", "mine")}


def event(operation: str = "insert", db: str = "shop", coll: str = "orders") -> ChangeEvent:
    return ChangeEvent.from_document(change(1, operation=operation, ns={"db": db, "coll": coll}))


def drop_database(db: str) -> ChangeEvent:
    return ChangeEvent.from_document(ddl(1, "dropDatabase") | {"ns": {"db": db}})


def rename(source: str, target: str) -> ChangeEvent:
    document = ddl(1, "rename") | {"ns": {"db": "shop", "coll": source}}
    return ChangeEvent.from_document(document | {"to": {"db": "shop", "coll": target}})


def route(*handlers: str, scope: str = "orders", **fields: Any) -> Route:
    return Route(scope, handlers, **fields)


def wants(*routes: Route) -> Any:
    """Whether the one handler of these routes wants the event."""
    (one,) = routed("orders", routes, HANDLERS)
    assert one.wants is not None
    return one.wants


def names(routes: list[Routed]) -> list[str]:
    return [one.handler.name for one in routes]


def test_a_scope_has_the_handlers_of_its_own_routes_each_once_in_order() -> None:
    routes = [
        route("lake", "audit"),
        route("mine", scope="users"),
        route("audit", operations=frozenset({"drop"})),
    ]
    assert names(routed("orders", routes, HANDLERS)) == ["lake", "audit"]
    assert names(routed("users", routes, HANDLERS)) == ["mine"]
    assert routed("others", routes, HANDLERS) == []


def test_operations_choose_by_type() -> None:
    some = wants(route("audit", operations=frozenset({"insert", "drop"})))
    assert some(event("insert"))
    assert some(ChangeEvent.from_document(ddl(1, "drop")))
    assert not some(event("update"))
    assert not some(ChangeEvent.from_document(invalidate(1)))


@pytest.mark.parametrize(
    ("pattern", "db", "coll", "matches"),
    [
        ("shop.orders", "shop", "orders", True),
        ("shop.orders", "shop", "orders2", False),
        ("shop.orders", "shop2", "orders", False),
        ("shop.orders", "myshop", "orders", False),
        ("shop.*", "shop", "anything.with.dots", True),
        ("shop.*", "shopping", "orders", False),
        ("*.orders", "any", "orders", True),
        ("*.orders", "any", "reorders", False),
        ("shop_*.o*s", "shop_eu", "orders", True),
        ("shop_*.o*s", "shop_eu", "order", False),
        ("SHOP.orders", "shop", "orders", False),
        ("shop.orders", "shop", "orders\n", False),
    ],
)
def test_namespaces_choose_by_pattern(pattern: str, db: str, coll: str, matches: bool) -> None:
    some = wants(route("audit", namespaces=(pattern,)))
    assert some(event(db=db, coll=coll)) is matches


def test_the_drop_of_a_database_concerns_all_its_namespaces() -> None:
    some = wants(route("audit", namespaces=("shop.orders", "crm_*.people")))
    assert some(drop_database("shop"))
    assert some(drop_database("crm_eu"))
    assert not some(drop_database("hr"))
    assert not some(drop_database("myshop"))


def test_a_rename_concerns_both_names() -> None:
    some = wants(route("audit", namespaces=("shop.orders",)))
    assert some(rename("orders", "old"))
    assert some(rename("new", "orders"))
    assert not some(rename("new", "old"))


def test_operations_and_namespaces_of_one_route_must_both_hold() -> None:
    some = wants(route("audit", operations=frozenset({"insert"}), namespaces=("shop.*",)))
    assert some(event("insert", "shop"))
    assert not some(event("update", "shop"))
    assert not some(event("insert", "crm"))
    assert not some(ChangeEvent.from_document(invalidate(1)))


def test_a_handler_of_several_routes_wants_what_any_of_them_says() -> None:
    some = wants(
        route("audit", operations=frozenset({"insert"}), namespaces=("shop.*",)),
        route("audit", operations=frozenset({"delete"})),
    )
    assert some(event("insert", "shop"))
    assert some(event("delete", "crm"))
    assert not some(event("insert", "crm"))
    assert not some(event("update", "shop"))
