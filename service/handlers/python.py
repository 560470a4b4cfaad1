"""Calls a coroutine function of the user's: of one event, or of a sequence of events."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from service.config import PythonHandlerSettings
from service.engine import Handler
from service.errors import ConfigurationError, Problem, describe

_SEQUENCES = re.compile(r"(?:[\w.]*\.)?(?:Sequence|[Ll]ist|[Tt]uple|Iterable|Collection)\b")


def python_handler(name: str, settings: PythonHandlerSettings, *, lanes: int) -> Handler:
    """The target as a handler.

    It takes a sequence if its parameter is annotated as one (``Sequence[ChangeEvent]``, ``list``,
    …) or, without an annotation, is named ``events``. Raises :class:`ConfigurationError` where
    the target does not import, or is no coroutine function of one argument.
    """
    function, takes_events = _load(f"handlers.{name}.target", settings.target)
    if takes_events:
        return Handler(
            name,
            on_events=function,
            batch_size=settings.batch_size,
            linger_seconds=settings.linger_seconds,
        )
    return Handler(name, on_event=function, concurrency=settings.concurrency or lanes)


def _load(where: str, target: str) -> tuple[Callable[..., Any], bool]:
    module_name, _, attribute = target.partition(":")
    # The directory that the process runs in, as for `python -m`: handlers lie beside the file.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except Exception as error:
        raise _refused(
            where,
            f"{target!r} cannot be imported: {describe(error)}. Modules are looked for in the "
            "working directory, on PYTHONPATH and among what is installed",
        ) from error
    call = function
    if not inspect.iscoroutinefunction(function) and not inspect.isclass(function):
        call = getattr(function, "__call__", None)  # noqa: B004 - an object with such a method
    if not inspect.iscoroutinefunction(call):
        raise _refused(where, f"{target!r} is no coroutine function: write 'async def'")
    parameters = list(inspect.signature(function).parameters.values())
    wanted = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if not parameters or len(wanted) > 1 or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise _refused(
            where, f"{target!r} must take one argument, the event or the events: {_shape(function)}"
        )
    return function, _takes_events(call, parameters[0])


def _takes_events(function: Any, parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return parameter.name == "events"
    try:
        annotation = get_type_hints(function).get(parameter.name, parameter.annotation)
    except Exception:  # noqa: BLE001 - a name that exists for type checkers only
        annotation = parameter.annotation
    if isinstance(annotation, str):
        return _SEQUENCES.match(annotation) is not None
    return _is_sequence(annotation)


def _is_sequence(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    if kind in (Union, UnionType):
        return any(map(_is_sequence, get_args(annotation)))
    return isinstance(kind, type) and hasattr(kind, "__iter__") and not hasattr(kind, "keys")


def _shape(function: Any) -> str:
    return f"it is {getattr(function, '__name__', function)}{inspect.signature(function)}"


def _refused(where: str, message: str) -> ConfigurationError:
    return ConfigurationError(Problem(where, message))
