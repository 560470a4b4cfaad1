"""What handlers may do to the task in which they run; each harm acts like one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel

from tailrace.engine import Handler
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.failure_policy import FailurePolicy
from tests.handlers import handler
from tests.unit.engine.changes import number

Harm = Callable[[], Awaitable[None]]


def task() -> asyncio.Task[Any]:
    found = asyncio.current_task()
    assert found is not None
    return found


def soon(call: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_soon(call)


async def cancels_it_at_once() -> None:
    task().cancel()


async def cancels_it_soon() -> None:
    soon(task().cancel)


async def cancels_it_soon_and_fails() -> None:
    soon(task().cancel)
    raise OSError("refused")


async def swallows_it() -> None:
    task().cancel()
    with suppress(asyncio.CancelledError):
        await anyio.lowlevel.checkpoint()


async def takes_it_back() -> None:
    await swallows_it()
    while task().uncancel():
        pass
    soon(task().cancel)
    task().uncancel()


async def raises_it() -> None:
    raise asyncio.CancelledError


async def awaits_what_is_cancelled() -> None:
    other = asyncio.get_running_loop().create_future()
    other.cancel()
    await other


async def leaves_a_scope() -> None:
    anyio.CancelScope().__enter__()


async def leaves_a_shield() -> None:
    anyio.CancelScope(shield=True).__enter__()


async def leaves_a_cancelled_scope() -> None:
    scope = anyio.CancelScope()
    scope.__enter__()
    scope.cancel()


async def leaves_a_time_limit() -> None:
    await asyncio.timeout(0.001).__aenter__()


async def leaves_a_task_group() -> None:
    async def fails() -> None:
        raise OSError("in a task of its own")

    group = anyio.create_task_group()
    await group.__aenter__()
    group.start_soon(fails)


async def closes_it() -> None:
    coroutine = task().get_coro()
    assert coroutine is not None
    soon(coroutine.close)  # type: ignore[union-attr]
    await anyio.sleep_forever()


async def closes_it_soon() -> None:
    coroutine = task().get_coro()
    assert coroutine is not None

    def close() -> None:
        with suppress(ValueError):  # it is running now
            coroutine.close()  # type: ignore[union-attr]

    soon(close)


async def raises_generator_exit() -> None:
    raise GeneratorExit


async def raises_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


HARMS = [
    cancels_it_at_once,
    cancels_it_soon,
    cancels_it_soon_and_fails,
    swallows_it,
    takes_it_back,
    raises_it,
    awaits_what_is_cancelled,
    leaves_a_scope,
    leaves_a_shield,
    leaves_a_cancelled_scope,
    leaves_a_time_limit,
    leaves_a_task_group,
    closes_it,
    closes_it_soon,
    raises_generator_exit,
    raises_keyboard_interrupt,
]


class Harmful:
    """A handler in each of its forms; ``harms`` decides which calls do the harm."""

    def __init__(self, harm: Harm, harms: Callable[[int], bool]) -> None:
        self.harm = harm
        self.harms = harms
        self.calls = 0
        self.inside: set[int] = set()
        self.twice: list[int] = []
        self.handled: list[int] = []

    async def on_event(self, event: ChangeEvent) -> None:
        await self.on_events([event])

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        numbers = [number(event) for event in events]
        self.twice += self.inside.intersection(numbers)
        self.inside.update(numbers)
        try:
            await anyio.lowlevel.checkpoint()
            self.handled += numbers
            self.calls += 1
            if self.harms(self.calls):
                await self.harm()
        finally:
            self.inside.difference_update(numbers)

    async def on_documents(self, documents: Sequence[bytes]) -> None:
        await self.on_events([ChangeEvent(raw) for raw in documents])

    async def position(self, owner: object) -> SinkPosition | None:
        return None

    def handler(self, form: str, policy: FailurePolicy) -> Handler:
        forms: dict[str, dict[str, Any]] = {
            "event": {"on_event": self.on_event, "concurrency": 4},
            "events": {"on_events": self.on_events, "batch_size": 4},
            "by key": {"on_events": self.on_events, "batch_size": 4, "by_key": 3},
            "bytes": {"on_events": self.on_documents, "raw": True, "batch_size": 4},
            "own position": {
                "on_events": self.on_events,
                "batch_size": 1,
                "position": self.position,
            },
        }
        return handler("harmful", failure=policy, **forms[form])


FORMS = ["event", "events", "by key", "bytes", "own position"]
