"""Finds handler calls in the stacks of the event loop and its tasks, at no cost to deliveries."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.destination_position import DestinationPosition
from tailrace.engine.status.lag import awaited_call
from tailrace.event import ChangeEvent
from tailrace.event.naming import document_key

_ENGINE = str(Path(__file__).parents[1])
_PACKAGE = str(Path(__file__).parents[2])
_CALLS = frozenset(
    {
        Delivery._attempt.__code__,
        CommitDelivery._part.__code__,
        DestinationPosition._answer.__code__,
    }
)
"""Each has the local variables ``self`` and ``began``, and ``first`` (an event, or ``None``) or
``what``."""


def blocking_handler(innermost: FrameType) -> dict[str, str]:
    """The handler that blocks the event loop, its scope and line; else a line of this package."""
    called = ours = None
    frame: FrameType | None = innermost
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE) and ours is None:
            ours = frame
        if not path.startswith(_ENGINE):
            called = frame
        elif isinstance(delivery := frame.f_locals.get("self"), Delivery):
            return {
                "scope": delivery.scope,
                "handler": delivery.name,
                "at": _location(called or frame),
                "inside": _location(innermost),
            }
        frame = frame.f_back
    return {"at": _location(ours or innermost), "inside": _location(innermost)}


def _location(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call of a handler that has not returned."""

    scope: str
    handler: str
    seconds: float
    """How long it has run."""
    limit: float
    """How long it may run; 0 without a limit."""
    first: ChangeEvent | None
    """The first of its events, if it has any."""
    what: str
    """What it is for, if not only for its events."""
    is_question: bool = False
    """Whether the handler is asked something, such as its position: that reports its delay."""

    @property
    def about(self) -> str:
        """The key of its first document, or what it is asked for."""
        return (document_key(self.first) if self.first is not None else "") or self.what

    @property
    def since(self) -> float:
        """When it began (Unix time)."""
        return time.time() - self.seconds


def waits_for(scope: str) -> str:
    """The call that has run longest, and the number of other calls; empty if none runs."""
    calls = [call for call in running_calls() if call.scope == scope]
    if not calls:
        return ""
    longest = max(calls, key=lambda call: call.seconds)
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    return f"{awaited_call(longest.handler, longest.about, longest.since)}{more}"


def running_calls() -> Iterator[RunningCall]:
    """Every call that runs in this event loop."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no event loop runs, so no call
        return
    for task in tasks:
        coroutine: Any = task.get_coro()
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is not None and frame.f_code in _CALLS:
                variables = frame.f_locals
                if (began := variables.get("began")) is not None:
                    yield _call(variables["self"], began, variables)
            coroutine = getattr(coroutine, "cr_await", None)


def _call(
    caller: Delivery | DestinationPosition, began: float, found: Mapping[str, Any]
) -> RunningCall:
    what = found.get("what", "")
    if isinstance(caller, DestinationPosition):
        scope, handler = caller.identity.scope, caller.handler.name
        seconds = time.perf_counter() - began
        return RunningCall(scope, handler, seconds, 0, None, what, is_question=True)
    seconds, limit = caller.clock() - began, caller.handler.failure.timeout_seconds or 0
    return RunningCall(caller.scope, caller.name, seconds, limit, found["first"], what)
