"""Tries the start of each handler, and leaves nothing behind."""

from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.handler_type import Opening, ProbeContext
from tailrace.destination.keeper import keeper
from tailrace.engine.handle.outage import is_outage
from tailrace.errors import ConfigurationError, Problem, TailraceError, describe
from tailrace.handlers.failures import outage_classes
from tailrace.handlers.open_handler import OpenHandler
from tailrace.handlers.types import type_of
from tailrace.model import Scope


async def probe_handler(
    name: str, settings: AnyHandlerSettings, scopes: Sequence[Scope], cluster: str
) -> str:
    """Starts a handler of these scopes as ``run`` would, and ends it. Returns what is possible.

    The objects of all scopes are made, and that of the first one is entered and left. Raises
    :class:`tailrace.errors.TailraceError`.
    """
    kind, context = type_of(settings), ProbeContext(scopes, cluster)
    kind.require_installed(name)
    scope = scopes[0] if scopes else Scope(name)
    opening = Opening(name, scope, DeliverySettings(), CollectorRegistry(), scopes)
    if kind.probe is not None:
        return await kind.probe(opening, settings, context)
    async with keeper() as objects:
        first, *_ = [
            OpenHandler.of(replace(opening, scope=of), settings).managed
            for of in ([scope] if kind.shared(settings) else scopes or [scope])
        ]
        objects.open(first)
        await first.opened()
        probe = getattr(first.usable(), "probe", None)
        if probe is None:
            return f"{getattr(settings, 'target', kind.name)} starts"
        try:
            return str(await probe(context))
        except Exception as error:
            outage = is_outage(error, outage_classes(name, settings))
            if isinstance(error, TailraceError) and not outage:
                raise
            wait = ". 'tailrace run' starts, and waits for it" if outage else ""
            problem = Problem(f"handlers.{name}", f"{describe(error)}{wait}")
            raise ConfigurationError(problem) from error
