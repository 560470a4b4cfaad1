"""Keeps what a handler does to its task away from the tasks of the engine.

A handler can cancel its task, leave a cancel scope open in it or close its coroutine, and what
awaits next in that task is hit. So a call is made apart, in a task of its own, or in a worker that
may be lost (:mod:`tailrace.engine.handle.lane`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

import anyio

from tailrace.errors import TaskCancelled

T = TypeVar("T")


class CallCancelled(Exception):
    """The error of a call whose task was cancelled, and not by this service."""


def cancelled_by_us() -> bool:
    """Whether a cancel scope around this task is cancelled: asked in tasks that run no handler."""
    return anyio.current_effective_deadline() == -inf


def closes(error: BaseException) -> bool:
    """Whether it closes a coroutine from outside, where no task runs: a handler may raise it."""
    if not isinstance(error, GeneratorExit):
        return False
    with suppress(RuntimeError):
        return asyncio.current_task() is None
    return True


def stray_cancellation() -> bool:
    """Whether a cancellation that was caught was asked of this task: else it was only raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def required(call: Callable[..., Awaitable[T]], name: str, *arguments: Any) -> T:
    """The call, in a task that runs no handler; a stray cancellation is :class:`TaskCancelled`."""
    try:
        return await call(*arguments)
    except anyio.get_cancelled_exc_class() as error:
        if cancelled_by_us():
            raise
        raise TaskCancelled(
            f"{name} was cancelled, and not by this service: a handler, or a library that it uses, "
            "cancels tasks that are not its own"
        ) from error


def apart(call: Callable[..., Awaitable[T]], name: str) -> Callable[..., Awaitable[T]]:
    """The call, made in a task of its own of that name; what it raises is raised here.

    A cancellation of its task that is not ours is :class:`CallCancelled`. A call that returns in
    spite of our own cancellation has returned.
    """

    async def called(*arguments: Any) -> T:
        returned: list[T] = []
        failures: list[BaseException] = []

        async def run() -> None:
            task = asyncio.current_task()
            try:
                returned.append(await call(*arguments))
            except anyio.get_cancelled_exc_class():
                pass  # if it was ours, the task that waits for this one is cancelled too
            except BaseException as error:
                if closes(error):
                    # The task does not know of it, and would wait for ever.
                    with suppress(RuntimeError):
                        task.cancel()  # type: ignore[union-attr]
                    raise
                failures.append(error)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, name=name)
        except anyio.get_cancelled_exc_class():
            if not returned:
                raise
        except Exception:  # noqa: BLE001, S110 - anyio finds the task ruined; what came of the call we know
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
