"""Destinations, one module each. :func:`open_handlers` opens the configured handlers.

:mod:`tailrace.handlers.types` has the table of their types. The daemon opens and closes each alone
(:mod:`tailrace.handlers.pool`).
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.scopes import WHOLE_DOCUMENTS, RouteSettings, ScopeSettings
from tailrace.engine import Handler
from tailrace.engine.handle.outage import is_outage
from tailrace.errors import ConfigurationError, Problem, StartRefused, TailraceError, describe
from tailrace.handlers.failures import failure_policy, outage_classes
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.types import type_of
from tailrace.model import Scope


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
        except ConfigurationError as error:
            problems.extend(error.problems)
        if handler.needs_documents:
            routed = {route.scope for route in routes if name in route.handlers}
            problems.extend(_without_documents(name, handler, scopes, routed))
    return problems


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
                f"({handler.type}) stores whole documents and updates carry none otherwise"
            )
            yield Problem(f"scopes[{index}].full_document", message)


@asynccontextmanager
async def open_handlers(
    handlers: Mapping[str, AnyHandlerSettings],
    delivery: DeliverySettings,
    registry: CollectorRegistry | None = None,
    *,
    follows: Mapping[str, Sequence[Scope]] = MappingProxyType({}),
) -> AsyncIterator[dict[str, Handler]]:
    """Opens every handler; gives them by name and closes them when the block ends.

    ``registry`` takes the metrics of handler classes; without one, nobody sees them. ``follows``:
    the scopes whose changes each handler gets. Raises as :func:`open_handler` does.
    """
    opened: dict[str, Handler] = {}
    registry = registry or CollectorRegistry()
    async with AsyncExitStack() as stack:
        for name, settings in handlers.items():
            opening = Opening(name, delivery, registry, follows=follows.get(name, ()))
            opened[name] = await stack.enter_async_context(open_handler(opening, settings))
        yield opened


@asynccontextmanager
async def open_handler(opening: Opening, settings: AnyHandlerSettings) -> AsyncIterator[Handler]:
    """Opens a handler, and closes it when the block ends.

    Raises :class:`ConfigurationError` or :class:`StartRefused` if it cannot be opened.
    """
    kind = type_of(settings)
    kind.require_installed(opening.name)
    async with AsyncExitStack() as stack:
        try:
            handler = await stack.enter_async_context(kind.open(opening, settings))
        except TailraceError:
            raise
        except Exception as error:
            raise _refusal(opening.name, error) from error
        failure = failure_policy(opening.name, settings, opening.delivery, handler)
        yield replace(handler, failure=failure)


def _refusal(name: str, error: Exception) -> TailraceError:
    """What refuses the start where a type's own opener has failed."""
    message = f"cannot be opened: {describe(error)}"
    if is_outage(error):
        return StartRefused(f"handlers.{name}: {message}", may_pass=True)
    return ConfigurationError(Problem(f"handlers.{name}", message))
