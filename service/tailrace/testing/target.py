"""Opens what a test wants to try: a function, a class with options, an object, or a configured
type."""

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from tailrace.config import Settings
from tailrace.config.handlers import PythonHandlerSettings
from tailrace.engine import Handler
from tailrace.handlers import failure_policy, open_handlers
from tailrace.handlers.outages import outage_classes
from tailrace.handlers.python import target_handler
from tailrace.model.failure_policy import Backoff

NAME = "handler"
"""The name of the handler under test."""
AT_ONCE = Backoff(0, 0)
"""Tests do not wait between attempts."""


def configured(target: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The target in the words of ``config.yaml``."""
    if isinstance(target, Mapping):
        return {**target, **options}
    known = target if hasattr(target, "__qualname__") else type(target)
    name = f"{known.__module__}:{known.__qualname__.replace('<locals>.', '')}"
    return {"type": "python", "target": name.replace("<lambda>", "function"), **options}


@asynccontextmanager
async def opened(target: Any, settings: Settings) -> AsyncIterator[Handler]:
    """The handler, open until the block ends, with no time between its attempts.

    A class becomes a new object each time, and a function that is not a coroutine function is
    called for one.
    """
    of, registry = settings.handlers[NAME], CollectorRegistry()
    if isinstance(of, PythonHandlerSettings):
        if inspect.isfunction(target) and not inspect.iscoroutinefunction(target):
            target = target()
        lanes = settings.delivery.lanes
        opening = target_handler(NAME, target, of, lanes=lanes, registry=registry)
        async with opening as handler:
            failure = failure_policy(of, settings.delivery, handler)
            failure = replace(failure, outages=outage_classes(NAME, of.outages))
            yield _hurried(replace(handler, failure=failure))
    else:
        async with open_handlers({NAME: of}, settings.delivery, registry) as handlers:
            yield _hurried(handlers[NAME])


def _hurried(handler: Handler) -> Handler:
    failure = replace(handler.failure, backoff=AT_ONCE, outage_backoff=AT_ONCE)
    commit = handler.commit and replace(handler.commit, seconds=0.0)
    return replace(handler, failure=failure, commit=commit)
