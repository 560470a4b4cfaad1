"""Tries the start of each handler, and leaves nothing behind."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.handlers.handler_type import Opening, Trial
from tailrace.handlers.types import type_of
from tailrace.model import Scope


async def try_handler(
    name: str, settings: AnyHandlerSettings, scopes: Sequence[Scope], cluster: str
) -> str:
    """Starts a handler of these scopes as ``run`` would, and ends it. Returns what is possible.

    An object of a user's class is created, entered and left. Raises
    :class:`tailrace.errors.TailraceError`.
    """
    kind = type_of(settings)
    kind.require_installed(name)
    opening = Opening(name, DeliverySettings(), CollectorRegistry(), follows=scopes)
    if kind.attempt is not None:
        return await kind.attempt(opening, settings, Trial(scopes, cluster))
    async with kind.open(opening, settings):
        return f"{kind.name} can be opened"
