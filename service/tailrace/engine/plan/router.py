"""Which handlers want which events of a scope."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate

from tailrace.engine.plan.row_source import NoRows, RowSource
from tailrace.engine.ports import Handler
from tailrace.event import ChangeEvent
from tailrace.model import Route, StartPoint

Wants = Callable[[ChangeEvent], bool]


@dataclass(frozen=True, slots=True)
class Routed:
    """A handler of a scope, and the test for events that it wants (``None``: all events).

    ``start``: where it begins if it has no position (``None``: where the scope does). ``rows``:
    makes the reader of documents for it alone; ``begins_apart``: it begins in another way than the
    scope's other handlers. ``subscription``: the name under which its position is kept, if that is
    not the handler's.
    """

    handler: Handler
    wants: Wants | None = None
    start: StartPoint | None = None
    rows: Callable[[], RowSource] = NoRows
    begins_apart: bool = False
    subscription: str = ""

    @property
    def name(self) -> str:
        """The name of the subscription: mostly, the handler's."""
        return self.subscription or self.handler.name


def routed(scope: str, routes: Iterable[Route], handlers: Mapping[str, Handler]) -> list[Routed]:
    """The scope's handlers, each once: a handler of several routes wants what any of them wants.

    If the scope's pipeline has removed a field that a route tests (the operation type, the
    namespace), the route wants the event: an event is never skipped for lack of a field.
    """
    by_handler: dict[str, list[Route]] = {}
    for route in routes:
        if route.scope == scope:
            for name in route.handlers:
                by_handler.setdefault(name, []).append(route)
    return [Routed(handlers[name], wants_of(of_it)) for name, of_it in by_handler.items()]


def wants_of(routes: Sequence[Route]) -> Wants | None:
    """The test for events that any of a handler's routes wants; ``None`` if that is all."""
    if any(not route.operations and not route.namespaces for route in routes):
        return None
    tests = [_test(route) for route in routes]
    if len(tests) == 1:
        return tests[0]
    return lambda event: any(test(event) for test in tests)


def _test(route: Route) -> Wants:
    # The type of an event without one is "".
    operations = {*route.operations, ""} if route.operations else frozenset[str]()
    if not route.namespaces:
        return lambda event: event.operation_type in operations
    matches = re.compile("|".join(map(translate, route.namespaces))).match
    databases = {name.partition(".")[0] for name in route.namespaces}
    of_database = re.compile("|".join(map(translate, databases))).match

    def wants(event: ChangeEvent) -> bool:
        if operations and event.operation_type not in operations:
            return False
        ns = event.ns
        if ns is None:
            return True  # an invalidate, which ends every namespace, or an unknown namespace
        if ns.coll is None:
            return of_database(ns.db) is not None
        if matches(str(ns)) is not None:
            return True
        to = event.to  # a rename also concerns its target
        return to is not None and matches(str(to)) is not None

    return wants
