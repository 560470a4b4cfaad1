"""Protects the engine's tasks from what a handler does to the task it runs in.

A handler can cancel its task, leave a cancel scope open in it or close its coroutine. That hits the
next ``await`` in the task. So each call runs in a task of its own, or in a worker that the lane can
replace (:mod:`tailrace.engine.handle.lane`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from math import inf
from typing import Any, TypeVar

import anyio

from tailrace.errors import TaskCancelled

T = TypeVar("T")


EAGER_SECONDS = 0.25
"""How long a cancelled call is cancelled again in every turn of the event loop, as anyio does."""
AGAIN_SECONDS = 1.0
"""How often a call that ignores its cancellation is cancelled after that: every turn would cost
most of a core until it ends."""

_OWN_TASK: ContextVar[tuple[asyncio.Task[object] | None, anyio.CancelScope] | None] = ContextVar(
    "apart", default=None
)
"""The task of its own in which a call runs, and the scope that spares it cancellations."""


class CallCancelled(Exception):
    """The task of a call was cancelled, but not by this service."""


def cancelled_by_us() -> bool:
    """Whether a cancel scope around this task is cancelled; call it where no handler runs."""
    found = _OWN_TASK.get()
    if found is not None and found[0] is asyncio.current_task():
        found[1].shield = False  # the call has ended
    return anyio.current_effective_deadline() == -inf


def is_closing(error: BaseException) -> bool:
    """Whether the error closes a coroutine from outside, where no task runs.

    A handler may raise ``GeneratorExit`` itself: that does not count.
    """
    if not isinstance(error, GeneratorExit):
        return False
    with suppress(RuntimeError):
        return asyncio.current_task() is None
    return True


def stray_cancellation() -> bool:
    """Whether a caught cancellation was requested of this task; if not, it was only raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def must_finish(call: Callable[..., Awaitable[T]], name: str, *arguments: Any) -> T:
    """Makes a call in a task that runs no handler; :class:`TaskCancelled` if others cancel it."""
    try:
        return await call(*arguments)
    except anyio.get_cancelled_exc_class() as error:
        if cancelled_by_us():
            raise
        raise TaskCancelled(
            f"{name} was cancelled, and not by this service: a handler, or a library that it uses, "
            "cancels tasks that are not its own"
        ) from error


def in_own_task(call: Callable[..., Awaitable[T]], name: str) -> Callable[..., Awaitable[T]]:
    """Wraps ``call`` to run in a task of its own with this name; its errors are raised here.

    Raises :class:`CallCancelled` if its task is cancelled, but not by us. If the call returns
    although we cancelled it, its result is returned. If it ignores that, it is waited for.
    """

    async def called(*arguments: Any) -> T:
        returned: list[T] = []
        failures: list[BaseException] = []
        began = False
        ended = anyio.Event()

        async def run() -> None:
            nonlocal began
            began, task = True, asyncio.current_task()
            _OWN_TASK.set((task, tasks.cancel_scope))
            try:
                returned.append(await call(*arguments))
            except anyio.get_cancelled_exc_class():
                pass  # if we cancelled, the task that waits for this one is cancelled too
            except BaseException as error:
                if is_closing(error):
                    # The task does not notice it, and would wait for ever.
                    with suppress(RuntimeError):
                        task.cancel()  # type: ignore[union-attr]
                    raise
                failures.append(error)
            finally:
                ended.set()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, name=name)
                try:
                    await anyio.lowlevel.checkpoint()
                    if began:  # else others have cancelled its task before that
                        await ended.wait()
                except anyio.get_cancelled_exc_class():
                    if began and cancelled_by_us():
                        await _spared(tasks.cancel_scope, ended)
                    raise
        except anyio.get_cancelled_exc_class():
            if not returned:
                raise
        except Exception:  # noqa: BLE001, S110 - anyio finds the task broken; the outcome is known
            pass
        if returned:
            return returned[0]
        if failures:
            raise failures[0]
        raise CallCancelled(
            "the call was cancelled, and not by this service: the handler, or a library that it "
            "uses, cancels tasks"
        )

    return called


async def _spared(call: anyio.CancelScope, ended: anyio.Event) -> None:
    """Waits for the end of a cancelled call, without spinning if it ignores its cancellation."""
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(EAGER_SECONDS):
            await ended.wait()
        while not ended.is_set():
            call.shield = True
            with anyio.move_on_after(AGAIN_SECONDS):
                await ended.wait()
            call.shield = False  # cancels it once more
