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


INVALIDATE = ChangeEvent.from_document(invalidate(1))
INSERTS, DELETES = {"operations": frozenset({"insert"})}, {"operations": frozenset({"delete"})}
OF_SHOP: dict[str, Any] = {"namespaces": ("shop.*",)}
CHOICES: dict[str, tuple[list[Route], list[ChangeEvent], list[ChangeEvent]]] = {
    "operations choose by type": (
        [route("audit", operations=frozenset({"insert", "drop"}))],
        [event("insert"), ChangeEvent.from_document(ddl(1, "drop"))],
        [event("update"), INVALIDATE],
    ),
    "the drop of a database concerns all its namespaces": (
        [route("audit", namespaces=("shop.orders", "crm_*.people"))],
        [drop_database("shop"), drop_database("crm_eu")],
        [drop_database("hr"), drop_database("myshop")],
    ),
    "a rename concerns both names": (
        [route("audit", namespaces=("shop.orders",))],
        [rename("orders", "old"), rename("new", "orders")],
        [rename("new", "old")],
    ),
    "operations and namespaces of one route must both hold": (
        [route("audit", **INSERTS, **OF_SHOP)],
        [event("insert", "shop")],
        [event("update", "shop"), event("insert", "crm"), INVALIDATE],
    ),
    "a handler of several routes wants what any of them says": (
        [route("audit", **INSERTS, **OF_SHOP), route("audit", **DELETES)],
        [event("insert", "shop"), event("delete", "crm")],
        [event("insert", "crm"), event("update", "shop")],
    ),
}


@pytest.mark.parametrize(("routes", "chosen", "others"), CHOICES.values(), ids=CHOICES)
def test_routes_choose_by_operation_and_namespace(
    routes: list[Route], chosen: list[ChangeEvent], others: list[ChangeEvent]
) -> None:
    some = wants(*routes)
    assert [each for each in chosen if not some(each)] == []
    assert [each for each in others if some(each)] == []


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
