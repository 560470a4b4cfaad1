"""Makes clocks, chance and the order of sets the same in each run of a seed.

Only while a run of the simulation lasts; afterwards everything is as before.
"""

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from typing import Any
from unittest.mock import patch

from anyio._backends import _asyncio as backend
from anyio._core import _eventloop

from tailrace.stream import Interrupt
from tests.simulation.event_loop import NumberedTask

_CLOCKS = ("time", "monotonic", "perf_counter")


@contextmanager
def deterministic(seed: int, clock: Callable[[], float]) -> Iterator[None]:
    """All clocks are ``clock``, and all chance comes from the seed, as long as the block runs."""
    state = random.getstate()
    NumberedTask.numbers = count()
    with ExitStack() as stack:
        for place, name in _clock_places(len(sys.modules)):
            stack.enter_context(patch.object(place, name, clock))
        for place, name, known in _look_ups(len(sys.modules)):
            stack.enter_context(patch.object(place, name, known))
        for kind in (backend.CancelScope, Interrupt):
            stack.enter_context(_numbered(kind))
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


@cache
def _clock_places(modules: int) -> list[tuple[Any, str]]:
    """The clocks, and the names under which modules of the service have imported them, while so
    many modules are known."""
    ours = [module for name, module in sys.modules.items() if name.startswith("tailrace.")]
    return [
        (place, name)
        for name in _CLOCKS
        for place in (time, *ours)
        if getattr(place, name, None) is getattr(time, name)
    ]


@cache
def _look_ups(modules: int) -> list[tuple[Any, str, Callable[..., Any]]]:
    """What anyio asks at nearly each step, with an answer that costs less: which library runs the
    event loop, and which task is running."""
    tasks, loop, kind = (
        asyncio.tasks._current_tasks,
        asyncio._get_running_loop,
        backend.AsyncIOBackend,
    )  # type: ignore[attr-defined]
    places = [
        module
        for name, module in sys.modules.items()
        if name.startswith("anyio.")
        and getattr(module, "get_async_backend", None) is _eventloop.get_async_backend
    ]
    return [
        *((place, "get_async_backend", lambda library=None: kind) for place in places),
        (backend, "current_task", lambda: tasks.get(loop())),
    ]


@contextmanager
def _numbered(kind: type) -> Iterator[None]:
    """Objects of the class have hashes in the order in which they were made."""
    numbers, known = count(), dict[int, tuple[Any, int]]()

    def number(self: Any) -> int:
        found = known.get(id(self))
        if found is None:
            found = known[id(self)] = self, next(numbers)  # which keeps it: its id stays its own
        return found[1]

    with patch.object(kind, "__hash__", number):
        yield
