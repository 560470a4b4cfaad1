"""Opens what a test wants to try: a function, a class with options, an object, or a configured
type."""

import inspect
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

from prometheus_client import CollectorRegistry

from tailrace.assembly import target as target_of
from tailrace.config.loading import loads
from tailrace.config.settings import Settings
from tailrace.destination.handler_type import Opening
from tailrace.destinations.python import PythonHandlerSettings, target_object
from tailrace.engine import Handler
from tailrace.handlers.open_handler import open_handler
from tailrace.handlers.types import handler_models
from tailrace.model.failure_policy import Backoff

NAME = "handler"
"""The name of the handler under test."""
AT_ONCE = Backoff(0, 0)
"""Tests do not wait between attempts."""
_OUTAGE = Backoff(0.001, 0.01)
"""In an outage they hardly wait, but the rest of the test goes on."""


def configured(target: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The target in the words of ``config.yaml``."""
    if isinstance(target, Mapping):
        return {**target, **options}
    known = target if hasattr(target, "__qualname__") else type(target)
    name = re.sub(r"\W+", "_", known.__qualname__.rpartition(".")[2])
    return {"type": "python", "target": f"tests:{name}", **options}  # it is not imported


def settings_of(document: Mapping[str, Any]) -> Settings:
    """The settings, as from a file. Raises :class:`tailrace.errors.ConfigurationError`."""
    return loads(json.dumps(document, default=_text), handler_models, {})


def _text(value: Any) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(
        f"config.yaml cannot hold a {type(value).__name__}: give the harness a function that "
        "returns the object, lambda: Orders(pool)"
    )


@asynccontextmanager
async def opened(target: Any, settings: Settings) -> AsyncIterator[Handler]:
    """The handler, open until the block ends, with no time between its attempts.

    A class becomes a new object each time, and a function that is not a coroutine function is
    called for one.
    """
    of, scope = settings.handlers[NAME], target_of(settings.scopes[0])
    opening = Opening(NAME, scope, settings.delivery, CollectorRegistry(), (scope,))
    create = None
    if isinstance(of, PythonHandlerSettings) and not isinstance(target, Mapping):
        if inspect.isfunction(target) and not inspect.iscoroutinefunction(target):
            target = target()
        create = partial(target_object, opening, target, of)
    async with open_handler(opening, of, create, waits=True) as handler:
        yield _hurried(handler)


def _hurried(handler: Handler) -> Handler:
    failure = replace(handler.failure, backoff=AT_ONCE, outage_backoff=_OUTAGE)
    commit = handler.commit and replace(handler.commit, seconds=0.0)
    return replace(handler, failure=failure, commit=commit)
