"""Calls a coroutine function, or an object that is one, with an event, events, or their BSON."""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tailrace.engine import PerBatch, PerEvent, raw_list
from tailrace.engine.ports import Call, event_list

_SEQUENCES = re.compile(r"(?:[\w.]*\.)?(?:Sequence|[Ll]ist|[Tt]uple|Iterable|Collection)\b")

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_MORE = (("scope", "epoch"), ("scope",), ("epoch",), ())
"""The parameters that a function may have after its events."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def function_calls(
    function: Any, *, concurrency: int, batch: Callable[..., PerBatch]
) -> PerEvent | PerBatch:
    """How the engine calls the function.

    It gets a sequence if its first parameter is annotated as one (``Sequence[ChangeEvent]``,
    ``list``, …) or, without an annotation, is named ``events``. It gets BSON documents if the
    annotation is a sequence of ``bytes``. A parameter ``scope`` gets the scope's name, and a last
    parameter ``epoch`` the epoch of the process, which grows with each one that takes the scope
    over. ``batch`` makes the calls of a sequence, with its settings. Raises ``ValueError`` if the
    function is not a coroutine function with these parameters.
    """
    signature, event, more = _signature(function)
    is_sequence, raw = _takes(signature, event)
    call = _call(function, more)
    if is_sequence:
        return batch(call, raw_list if raw else event_list)
    return PerEvent(call, concurrency)


def _call(function: Callable[..., Awaitable[Any]], more: Sequence[str]) -> Call:
    """The call without the arguments that the function does not take; not a coroutine of its own,
    which every event would pay for."""
    match tuple(more):
        case ("scope", "epoch"):
            return lambda argument, identity: function(argument, identity.scope, identity.epoch)
        case ("scope",):
            return lambda argument, identity: function(argument, identity.scope)
        case ("epoch",):
            return lambda argument, identity: function(argument, identity.epoch)
        case _:
            return lambda argument, identity: function(argument)


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
        raise ValueError("is not a coroutine function: write 'async def'")
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters[1:] if p.kind is _POSITIONAL]
    more = next(ends for ends in _MORE if list(ends) == names[: len(ends)])
    others = parameters[1 + len(more) :]
    wanted = [p for p in others if p.default is p.empty and p.kind not in _VARIADIC]
    if not parameters or wanted or any(p.kind is p.KEYWORD_ONLY for p in parameters[:1]):
        shape = f"{getattr(function, '__name__', function)}{inspect.signature(function)}"
        raise ValueError(
            "must take one argument, the event or the events, and may take further ones called "
            f"scope and epoch, in this order: it is {shape}"
        )
    return call, parameters[0], more


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
