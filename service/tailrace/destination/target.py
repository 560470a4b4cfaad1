"""Imports the target of a python handler, and checks that it can be one."""

import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

from tailrace.destination.function import function_calls
from tailrace.destination.object_calls import require_methods
from tailrace.engine import PerBatch
from tailrace.errors import ConfigurationError, Problem, describe


def imported_target(name: str, target: str) -> Any:
    """The function, the object or the class that ``package.module:name`` names.

    Raises :class:`ConfigurationError` about handler ``name`` if it cannot be imported.
    """
    with _refusing(f"handlers.{name}.target", target):
        return _imported(target)


def require_usable(path: str, target: str, found: Any) -> bool:
    """Returns whether ``found``, which ``target`` names, gets several events in a call.

    Raises :class:`ConfigurationError` if it cannot be a handler. ``path``: the key in the
    configuration.
    """
    with _refusing(path, target):
        return _takes_batches(found)


def is_shared(target: Any) -> bool:
    """Whether one object serves all scopes: a class says so, and a function or an object cannot be
    made for each scope."""
    return not inspect.isclass(target) or getattr(target, "shared", False) is True


@contextmanager
def _refusing(path: str, target: str) -> Iterator[None]:
    """Turns a ``ValueError`` with the words after the target's name into a refusal."""
    try:
        yield
    except ValueError as error:
        problem = Problem(path, f"{target!r} {error}")
        raise ConfigurationError(problem) from error


def _takes_batches(target: Any) -> bool:
    function, writes, calls = target, hasattr(target, "write"), callable(target)
    if inspect.isclass(target):
        calls = any("__call__" in vars(kind) for kind in target.__mro__)
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
        return True
    return isinstance(function_calls(function, concurrency=1, batch=PerBatch), PerBatch)


def _imported(target: str) -> Any:
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
