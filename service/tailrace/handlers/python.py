"""Calls the user's coroutine function with one event, a sequence of events, or their BSON."""

import inspect
import pkgutil
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tailrace.config.handlers import PythonHandlerSettings
from tailrace.engine import Handler, Owner
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition

_SEQUENCES = re.compile(r"(?:[\w.]*\.)?(?:Sequence|[Ll]ist|[Tt]uple|Iterable|Collection)\b")

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_MORE = (("scope", "epoch"), ("scope",), ("epoch",), ())
"""The parameters that a target may have after its events."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def python_handler(name: str, settings: PythonHandlerSettings, *, lanes: int) -> Handler:
    """The target as a handler.

    The target takes a sequence if its first parameter is annotated as one
    (``Sequence[ChangeEvent]``, ``list``, …) or, without an annotation, is named ``events``. It gets
    BSON documents if the annotation is a sequence of ``bytes``. A parameter ``scope`` gets the
    scope's name. A last parameter ``epoch`` gets the owner's epoch, which grows with each process
    that takes the scope over. An object that also has a coroutine method ``position(scope)`` owns
    its position, and gets its events in the stream's order. Raises :class:`ConfigurationError` if
    the target cannot be imported or is not a coroutine function with these parameters.
    """
    try:
        function = _imported(settings.target)
        call, event, more = _signature(function)
        position = _position(function)
    except ValueError as error:
        problem = Problem(f"handlers.{name}.target", f"{settings.target!r} {error}")
        raise ConfigurationError(problem) from error
    is_sequence, raw = _takes(call, event)
    if is_sequence:
        handler = Handler(
            name,
            on_events=function,
            batch_size=settings.batch_size,
            raw=raw,
            linger_seconds=settings.linger_seconds,
        )
    elif position is not None:
        # Its position is that of one event, so its calls must not overlap.
        handler = Handler(name, on_events=_one_by_one(function), batch_size=1)
    else:
        handler = Handler(name, on_event=function, concurrency=settings.concurrency or lanes)
    scope, epoch = "scope" in more, "epoch" in more
    return replace(handler, takes_scope=scope, takes_epoch=epoch, position=position)


def _one_by_one(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def of_sequence(events: Sequence[ChangeEvent], *more: str | int) -> None:
        for event in events:
            await function(event, *more)

    return of_sequence


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


def _signature(function: Any) -> tuple[Callable[..., Any], inspect.Parameter, Sequence[str]]:
    """The coroutine function, its first parameter, and which of ``_MORE`` are after that."""
    call = function
    if not inspect.iscoroutinefunction(function) and not inspect.isclass(function):
        call = getattr(function, "__call__", None)  # noqa: B004 - an object with such a method
    if any(map(inspect.isasyncgenfunction, (function, call))):
        raise ValueError(
            "is an async generator: take its 'yield' out; a handler returns once its events are "
            "handled"
        )
    if not inspect.iscoroutinefunction(call):
        raise ValueError("is no coroutine function: write 'async def'")
    parameters = list(inspect.signature(function).parameters.values())
    names = [each.name for each in parameters[1:] if each.kind is _POSITIONAL]
    more = next(each for each in _MORE if list(each) == names[: len(each)])
    others = parameters[1 + len(more) :]
    wanted = [p for p in others if p.default is p.empty and p.kind not in _VARIADIC]
    if not parameters or wanted or any(p.kind is p.KEYWORD_ONLY for p in parameters[:1]):
        shape = f"{getattr(function, '__name__', function)}{inspect.signature(function)}"
        raise ValueError(
            "must take one argument, the event or the events, and may take further ones called "
            f"scope and epoch, in this order: it is {shape}"
        )
    return call, parameters[0], more


def _position(function: Any) -> Callable[[Owner], Awaitable[SinkPosition | None]] | None:
    ask = getattr(function, "position", None)
    if ask is None:
        return None
    if not inspect.iscoroutinefunction(ask) or len(inspect.signature(ask).parameters) != 1:
        raise ValueError(
            "has a position, which must be a coroutine method of one argument, the scope"
        )

    async def position(owner: Owner) -> SinkPosition | None:
        return SinkPosition.of(await ask(owner.scope))

    return position


def _takes(function: Any, parameter: inspect.Parameter) -> tuple[bool, bool]:
    """Whether the parameter is a sequence, and whether it is a sequence of bytes."""
    if parameter.annotation is parameter.empty:
        return parameter.name == "events", False
    try:
        annotation = get_type_hints(function).get(parameter.name, parameter.annotation)
    except Exception:  # noqa: BLE001 - a name that exists only for type checkers
        annotation = parameter.annotation
    if isinstance(annotation, str):
        sequence = _SEQUENCES.match(annotation) is not None
    else:
        sequence = _is_sequence(annotation)
    return sequence, sequence and "[bytes" in str(annotation)


def _is_sequence(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    if kind in (Union, UnionType):
        return any(map(_is_sequence, get_args(annotation)))
    return isinstance(kind, type) and hasattr(kind, "__iter__") and not hasattr(kind, "keys")
