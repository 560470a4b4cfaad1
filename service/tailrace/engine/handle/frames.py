"""Finds handler calls in the stacks of the event loop and its tasks, at no cost to deliveries."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.naming import document_key

_ENGINE = str(Path(__file__).parents[1])
_PACKAGE = str(Path(__file__).parents[2])
_CALLS = frozenset({Delivery._attempt.__code__, CommitDelivery._part.__code__})
"""Each has the local variables ``self``, ``first`` (an event, or ``None``) and ``began``."""


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
                "at": _place(called or frame),
                "inside": _place(innermost),
            }
        frame = frame.f_back
    return {"at": _place(ours or innermost), "inside": _place(innermost)}


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"


def waits_for(scope: str) -> str:
    """The call that has run longest, and the number of other calls; empty if none runs."""
    calls = sorted(_calls(scope), key=lambda call: call[0])
    if not calls:
        return ""
    began, handler, key = calls[0]
    since = datetime.now(UTC) - timedelta(seconds=time.perf_counter() - began)
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    named = f" on {key}" if key else ""
    return (
        f"waits for a call of handler {handler!r}{named} since "
        f"{since.isoformat(timespec='seconds')}{more}"
    )


def _calls(scope: str) -> Iterator[tuple[float, str, str]]:
    """For each call: its start (``perf_counter``), handler, and first document's key, if any."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no event loop runs, so no call
        return
    for task in tasks:
        coroutine: Any = task.get_coro()
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is not None and frame.f_code in _CALLS:
                found = frame.f_locals
                delivery, began = found["self"], found.get("began")
                if delivery.scope == scope and began is not None:
                    first = found["first"]
                    yield began, delivery.name, document_key(first) if first is not None else ""
            coroutine = getattr(coroutine, "cr_await", None)
