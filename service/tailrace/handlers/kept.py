"""Async contexts that are kept open, each in a task of its own, so that any task may end one.

A context must be left in the task that entered it, and a reload leaves them in any order.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from tailrace.engine.handle.isolation import required
from tailrace.errors import StartRefused, TaskCancelled

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Kept(Generic[T]):
    """What a context gives: opened by a :class:`Keeper`, and open until :meth:`leave`.

    ``name`` names it in tasks and errors.
    """

    name: str
    context: AbstractAsyncContextManager[T]
    _given: list[T] = field(default_factory=list)
    _failure: Exception | None = None
    _decided: anyio.Event = field(default_factory=anyio.Event)
    _life: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _leaving: anyio.Event = field(default_factory=anyio.Event)
    _closed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def given(self) -> T:
        """What the context gave. Only for one that is open."""
        return self._given[0]

    @property
    def closed(self) -> bool:
        """Whether it was left, or could not be opened."""
        return self._closed.is_set()

    async def opened(self) -> T:
        """Waits until it is open.

        Raises what has kept it from that: its own error, or :class:`StartRefused` if it was closed.
        """
        await self._decided.wait()
        if self._failure is not None:
            raise self._failure
        if not self._given:
            raise StartRefused(f"{self.name} was closed before it was open")
        return self.given

    async def run(self) -> None:
        """Keeps it open. A failure while it is open is raised here."""
        try:
            with self._life:
                async with self.context as given:
                    self._given.append(given)
                    self._decided.set()
                    await self._leaving.wait()
        except Exception as error:
            if self._decided.is_set():
                raise
            self._failure = error
        finally:
            self._decided.set()
            self._closed.set()

    def leave(self) -> None:
        """Lets it close."""
        self._leaving.set()

    async def close(self) -> None:
        """Closes it, or ends the attempt to open it."""
        self._leaving.set()
        if not self._decided.is_set():
            self._life.cancel()
        await self._closed.wait()


class Keeper:
    """Keeps contexts open, each in a task of a group."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._host = asyncio.current_task()
        self._kept: list[Kept[Any]] = []

    def keep(self, kept: Kept[Any]) -> None:
        """Begins to open it."""
        self._kept.append(kept)
        self._tasks.start_soon(self._run, kept, name=f"{kept.name} kept")

    async def _run(self, kept: Kept[Any]) -> None:
        try:
            await required(kept.run, f"the task that keeps {kept.name} open")
        except TaskCancelled as error:
            if self._host is not None and self._host.cancelling() and error.__cause__ is not None:
                raise error.__cause__ from None  # everything was cancelled: the process ends
            raise
        finally:
            self._kept.remove(kept)

    async def close(self) -> None:
        """Closes all, the last one first."""
        for kept in reversed(self._kept[:]):
            await kept.close()


@asynccontextmanager
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper, whose contexts are left when the block ends.

    Raises :class:`TaskCancelled` if somebody else cancels a task that keeps something open.
    """
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            found = Keeper(tasks)
            try:
                yield found
            except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
                failure = error
            await found.close()
    except BaseExceptionGroup as group:
        lost, _ = group.split(TaskCancelled)
        failure = lost.exceptions[0] if lost is not None else group  # the process must end
    if failure is not None:
        raise failure
