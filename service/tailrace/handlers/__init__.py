"""Destinations, one module each. :mod:`tailrace.handlers.types` has the table of their types.

A type makes an object for each scope, :mod:`tailrace.destination.keeper` enters and leaves it,
:mod:`tailrace.handlers.open_handler` calls it, and :mod:`tailrace.handlers.pool` has all handlers
of a process.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.scopes import WHOLE_DOCUMENTS, RouteSettings, ScopeSettings
from tailrace.errors import ConfigurationError, Problem
from tailrace.handlers.failures import outage_classes
from tailrace.handlers.shaping import changes_id, transform_of
from tailrace.handlers.types import type_of


def check_handlers(
    handlers: Mapping[str, AnyHandlerSettings],
    scopes: Sequence[ScopeSettings] = (),
    routes: Sequence[RouteSettings] = (),
    begun: Callable[[str], None] = lambda name: None,
) -> list[Problem]:
    """What is wrong with the handlers or not installed; imports targets, and opens nothing.

    ``begun`` is called with the name of each handler before: an import may never end.
    """
    problems: list[Problem] = []
    for name, handler in handlers.items():
        begun(name)
        kind = type_of(handler)
        try:
            kind.check(name, handler)
            kind.require_installed(name)
            outage_classes(name, handler)
            transform_of(name, handler)
        except ConfigurationError as error:
            problems.extend(error.problems)
        if handler.needs_documents:
            routed = {route.scope for route in routes if name in route.handlers}
            problems.extend(_without_documents(name, handler, scopes, routed))
    return problems or list(_without_rows(handlers, routes))


def _without_rows(
    handlers: Mapping[str, AnyHandlerSettings], routes: Sequence[RouteSettings]
) -> Iterator[Problem]:
    """The routes whose handlers are to be verified, and hold no rows that could be compared."""
    for index, route in enumerate(routes):
        for name in route.handlers if route.verify is not None else ():
            why = ""
            if changes_id(handlers[name]):
                why = "it hashes _id, and no document is found by a hash"
            elif not type_of(handlers[name]).is_comparable(handlers[name]):
                why = "docs/verify.md lists what can be asked"
            if why:
                message = (
                    f"handler {name!r} cannot be asked for its rows: give it a route of its own "
                    f"without verify; {why}"
                )
                yield Problem(f"routes[{index}].verify", message)


def _without_documents(
    name: str,
    handler: AnyHandlerSettings,
    scopes: Sequence[ScopeSettings],
    routed: Collection[str],
) -> Iterator[Problem]:
    """The scopes whose updates carry no document, which this handler must have."""
    for index, scope in enumerate(scopes):
        if scope.name in routed and scope.full_document not in WHOLE_DOCUMENTS:
            message = (
                f"must be one of {', '.join(WHOLE_DOCUMENTS)}, because handler {name!r} "
                f"({handler.type}) needs whole documents and updates carry none otherwise"
            )
            yield Problem(f"scopes[{index}].full_document", message)
