"""Destinations, one module each. :func:`open_handlers` opens the configured handlers."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec

from prometheus_client import CollectorRegistry

from tailrace.config import handlers as config
from tailrace.config.delivery import DeliverySettings
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, Problem, how_to_install
from tailrace.handlers.jsonl import jsonl_handler
from tailrace.handlers.log import log_handler
from tailrace.handlers.outages import outage_classes
from tailrace.handlers.python import check_target, python_handler
from tailrace.lake.storage import scheme
from tailrace.model.failure_policy import Backoff, FailurePolicy


def check_targets(handlers: Mapping[str, config.HandlerSettings]) -> list[Problem]:
    """Imports python targets and looks for extras; returns what is wrong or not installed."""
    problems: list[Problem] = []
    for name, settings in handlers.items():
        try:
            if not isinstance(settings, config.ParquetHandlerSettings):
                outage_classes(name, settings.outages)
            if isinstance(settings, config.PythonHandlerSettings):
                check_target(name, settings)
            elif isinstance(settings, config.ParquetHandlerSettings):
                require_extra(name, settings)
        except ConfigurationError as error:
            problems.extend(error.problems)
    return problems


@asynccontextmanager
async def open_handlers(
    handlers: Mapping[str, config.HandlerSettings],
    delivery: DeliverySettings,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[dict[str, Handler]]:
    """Opens every handler; gives them by name and closes them when the block ends.

    ``registry`` takes the metrics of handler classes; without one, nobody sees them.
    """
    opened: dict[str, Handler] = {}
    registry = registry or CollectorRegistry()
    async with AsyncExitStack() as stack:
        for name, settings in handlers.items():
            match settings:
                case config.JsonlHandlerSettings():
                    opened[name] = await stack.enter_async_context(jsonl_handler(name, settings))
                case config.LogHandlerSettings():
                    opened[name] = log_handler(name, settings)
                case config.ParquetHandlerSettings():
                    require_extra(name, settings)
                    # Arrow's own allocator keeps 20 MB and more after a segment; the system's is as
                    # fast. Arrow reads the environment when it is imported.
                    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
                    # Imported only if needed: pyarrow is an extra, and takes 0.2 s and 60 MB.
                    from tailrace.handlers.parquet import parquet_handler

                    opened[name] = await parquet_handler(name, settings)
                    continue  # it has its own failure policy
                case config.PythonHandlerSettings():
                    opening = python_handler(
                        name, settings, lanes=delivery.lanes, registry=registry
                    )
                    opened[name] = await stack.enter_async_context(opening)
            failure = failure_policy(settings, delivery, opened[name])
            failure = replace(failure, outages=outage_classes(name, settings.outages))
            opened[name] = replace(opened[name], failure=failure)
        yield opened


def require_extra(name: str, settings: config.ParquetHandlerSettings) -> None:
    """Raises :class:`ConfigurationError` if what the lake needs is not installed."""
    modules = ("pyarrow", "obstore") if scheme(settings.path) else ("pyarrow",)
    if missing := ", ".join(module for module in modules if find_spec(module) is None):
        needs = f"parquet needs {missing}, not installed here: {how_to_install('lake')}"
        raise ConfigurationError(Problem(f"handlers.{name}.type", needs))


def failure_policy(
    settings: config.HandlerBase, delivery: DeliverySettings, handler: Handler
) -> FailurePolicy:
    """The handler's own settings for failures, with those of `delivery` for keys left out.

    A handler with its own position halts unless its own settings say otherwise: a dead letter could
    not be replayed to it.
    """
    retry = settings.retry or delivery.retry
    letters = delivery.dead_letters
    otherwise = delivery.on_failure if handler.position is None else "halt"
    return FailurePolicy(
        attempts=retry.attempts,
        backoff=Backoff(retry.first_seconds, retry.cap_seconds),
        timeout_seconds=settings.timeout_seconds,
        halt=(settings.on_failure or otherwise) == "halt",
        max_consecutive=letters.max_consecutive,
        max_ratio=letters.max_ratio,
        ratio_window=letters.ratio_window,
    )
