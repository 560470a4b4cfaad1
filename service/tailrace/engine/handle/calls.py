"""Finds the handler calls that a scope waits for, from the frames of the tasks.

Deliveries do no extra work for it. ``/status`` and the probes ask while something waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.naming import document_key

_ATTEMPT = Delivery._attempt.__code__


def waits_for(scope: str) -> str:
    """The call that runs for longest, and how many others there are; nothing where none runs."""
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
    """When each began (by the counter), whose it is, and the key of its first document."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs: nothing does
        return
    for task in tasks:
        for frame in _frames(task.get_coro()):
            if frame.f_code is _ATTEMPT:
                found = frame.f_locals
                delivery, began = found["self"], found.get("began")
                if delivery.scope == scope and began is not None:
                    yield began, delivery.name, document_key(found["first"])


def _frames(coroutine: Any) -> Iterator[FrameType]:
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None)
