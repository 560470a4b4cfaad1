"""Opens a user's function, or an object of a user's class, as a handler."""

import inspect
import pkgutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import MethodType
from typing import Any

from prometheus_client import CollectorRegistry

from tailrace.config.handlers import PythonHandlerSettings
from tailrace.engine import Handler, PerBatch
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.handlers.destination import Destination, require_methods
from tailrace.handlers.function import function_calls
from tailrace.handlers.opening import opened
from tailrace.handlers.options import arguments


def check_target(name: str, settings: PythonHandlerSettings) -> None:
    """Imports the target and checks it and its options, without creating an object.

    Raises :class:`ConfigurationError`.
    """
    with _refusing(name, settings):
        target = _imported(settings.target)
    _require_suitable(name, target, settings)


@asynccontextmanager
async def python_handler(
    name: str, settings: PythonHandlerSettings, *, lanes: int, registry: CollectorRegistry
) -> AsyncIterator[Handler]:
    """The target as a handler. An object that is an async context manager is entered and left.

    Raises :class:`ConfigurationError` if the target cannot be imported or used, or its object
    cannot be created or opened.
    """
    with _refusing(name, settings):
        target = _imported(settings.target)
    async with target_handler(name, target, settings, lanes=lanes, registry=registry) as handler:
        yield handler


@asynccontextmanager
async def target_handler(
    name: str,
    target: Any,
    settings: PythonHandlerSettings,
    *,
    lanes: int,
    registry: CollectorRegistry,
) -> AsyncIterator[Handler]:
    """As :func:`python_handler`, for a target that is imported already."""
    _require_suitable(name, target, settings)
    if inspect.isclass(target):
        target = _created(name, target, arguments(name, target, settings.options))
    async with opened(name, target) as usable:
        yield _handler(name, usable, settings, lanes, registry)


def _created(name: str, kind: type, given: Mapping[str, Any]) -> Any:
    try:
        return kind(**given)
    except Exception as error:
        told = f"{kind.__name__} cannot be created: {describe(error)}"
        raise ConfigurationError(Problem(f"handlers.{name}.target", told)) from error


def _handler(
    name: str, target: Any, settings: PythonHandlerSettings, lanes: int, registry: CollectorRegistry
) -> Handler:
    bounds: dict[str, Any] = {
        "events": settings.batch_size,
        "bytes": settings.batch_bytes,
        "linger_seconds": settings.linger_seconds,
    }
    if hasattr(target, "write"):
        destination = Destination(name, target, registry)
        return Handler(name, destination.calls(**bounds), destination.position)
    batch = partial(PerBatch, **bounds)
    return Handler(
        name, function_calls(target, concurrency=settings.concurrency or lanes, batch=batch)
    )


@contextmanager
def _refusing(name: str, settings: PythonHandlerSettings) -> Iterator[None]:
    """Turns a ``ValueError`` about the target into a :class:`ConfigurationError`."""
    try:
        yield
    except ValueError as error:
        problem = Problem(f"handlers.{name}.target", f"{settings.target!r} {error}")
        raise ConfigurationError(problem) from error


def _require_suitable(name: str, target: Any, settings: PythonHandlerSettings) -> None:
    with _refusing(name, settings):
        _require_usable(target)
    if inspect.isclass(target):
        arguments(name, target, settings.options)
    elif settings.options:
        told = f"{settings.target!r} takes no options: only a class does"
        raise ConfigurationError(Problem(f"handlers.{name}.options", told))


def _require_usable(target: Any) -> None:
    """Raises ``ValueError`` with the words after the target's name."""
    function, writes, calls = target, hasattr(target, "write"), callable(target)
    if inspect.isclass(target):
        calls = any("__call__" in vars(each) for each in target.__mro__)
        function = MethodType(target.__call__, object())  # as of an object that is not created yet
        if not (writes or calls):
            raise ValueError(
                "is a class without a coroutine method write(batch) or __call__(event)"
            )
    if writes and calls:
        raise ValueError("has both write and __call__: keep one of them")
    if hasattr(target, "__aenter__") != hasattr(target, "__aexit__"):
        raise ValueError("has only one of __aenter__ and __aexit__: an async context needs both")
    if writes:
        require_methods(target)
    else:
        function_calls(function, concurrency=1, batch=PerBatch)


def _imported(target: str) -> Any:
    """Imports the target. The ``ValueError``, as below, has the words after the target's name."""
    # "" is the working directory, as for `python -m`. The command line has put the directory of
    # the configuration file before it.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return pkgutil.resolve_name(target)
    except BaseException as error:  # a module may call sys.exit() as well
        raise ValueError(
            f"cannot be imported: {describe(error)}. Modules are looked for beside the "
            "configuration file, in the working directory, on PYTHONPATH and among what is "
            "installed"
        ) from error
