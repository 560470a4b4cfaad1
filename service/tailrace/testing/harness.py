"""Runs a handler through the real engine, in memory, with faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import anyio

from tailrace.engine import Handler
from tailrace.errors import Unavailable
from tailrace.event import ChangeEvent
from tailrace.testing.changes import Changes
from tailrace.testing.faults import Fault, Faults, Method, When
from tailrace.testing.process import Disk, Process
from tailrace.testing.target import NAME, configured, settings_of
from tailrace.testing.waits import patiently, until

SCOPE = "orders"
_MOST_REPLACED = 10
"""So many processes may be fenced one after another before a test fails."""
_START_SECONDS = 30.0
"""A start may take so long at least: ``seconds`` is for what the handler does."""


class NotHandled(AssertionError):
    """The handler does not handle what it got: the scope is halted, or the time is up."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the event, why it became one, and after how many attempts (0: it followed an
    earlier letter of its document)."""

    event: ChangeEvent
    reason: str
    attempts: int


class Harness:
    """A handler in the real engine, on a stream and a store in memory.

    ``target`` is a coroutine function, a class (with ``options``), an object, a function that
    returns a new object, or a handler as in ``config.yaml``: ``{"type": "jsonl", "path": …}``.
    ``handler`` and ``scope`` are further keys of the two sections, such as ``batch_size`` and
    ``snapshot``; ``delivery`` is that section. There is no time between attempts.

    Changes are written with :attr:`changes`. Plan faults first, then write, then wait:

        async with Harness(Orders, {"path": path}) as harness:
            harness.kill("inside", step=2)
            harness.changes.insert({"_id": 1})
            await harness.handled()
    """

    def __init__(
        self,
        target: Any,
        options: Mapping[str, Any] | None = None,
        *,
        changes: Changes | None = None,
        handler: Mapping[str, Any] | None = None,
        scope: Mapping[str, Any] | None = None,
        delivery: Mapping[str, Any] | None = None,
        seconds: float = 30.0,
    ) -> None:
        self.changes = changes or Changes()
        self._target = target
        self._seconds = seconds
        more = {**(handler or {}), **({"options": dict(options)} if options else {})}
        follows: dict[str, Any] = {"name": SCOPE, "database": self.changes.ns.db}
        follows |= {"collection": self.changes.ns.coll, "full_document": "whenAvailable"}
        self.settings = settings_of(
            {
                "mongodb": {"uri": "mongodb://memory/?replicaSet=rs0"},
                "store": {"type": "memory"},
                "delivery": dict(delivery or {}),
                "scopes": [{**follows, **(scope or {})}],
                "handlers": {NAME: configured(target, more)},
                "routes": [{"scope": SCOPE, "handlers": [NAME]}],
            }
        )
        self._disk = Disk()
        self._faults = Faults()
        self._processes: list[Process] = []
        self._exit = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup

    async def __aenter__(self) -> Self:
        """Starts the first process."""
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        self._start()
        try:
            await self._until(
                lambda: self._current.follows or self._current.ended,
                seconds=max(self._seconds, _START_SECONDS),
            )
            if (failure := self._current.failure) is not None:
                raise failure
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stops the last process; kills it if the block has failed."""
        if kind is None and not self._current.ended:
            await self._current.stop()
        for process in self._processes:
            process.kill()
        await self._exit.aclose()

    # --- faults ----------------------------------------------------------------------------

    def outage(
        self, calls: int = 1, error: Exception | None = None, *, method: Method = "write"
    ) -> None:
        """The destination does not answer the next calls: each raises ``error``, by default
        :class:`tailrace.Unavailable`, before the handler is called."""
        for _ in range(calls):
            self.fail(error or Unavailable("an outage"), method=method)

    def fail(
        self,
        error: BaseException,
        when: When = "before",
        *,
        step: int = 1,
        calls: int = 1,
        method: Method = "write",
    ) -> Fault:
        """The next calls raise ``error``: before the handler is called, inside it (from its
        ``step``-th ``await``), or after it returned, as when an answer is lost."""

        async def happen() -> None:
            raise error.with_traceback(None)

        faults = [Fault(happen, when, step, method) for _ in range(calls)]
        self._faults.planned += faults
        return faults[0]

    def kill(self, when: When = "before", *, step: int = 1, method: Method = "write") -> Fault:
        """The process is killed in the next call. :meth:`handled` starts another one, with a new
        object of the class, from the last checkpoint."""

        async def happen() -> None:
            self._current.kill()
            if when != "inside":
                await anyio.sleep_forever()

        return self._plan(Fault(happen, when, step, method))

    def hand_over(
        self,
        when: When = "inside",
        *,
        step: int = 1,
        until: Literal["handled", "begun"] = "handled",
    ) -> Fault:
        """The process is paused in the next call, and another one takes the scope over.

        The paused call goes on when the other process has handled everything (``handled``), or when
        that process has its start position and has not written yet (``begun``).
        """

        async def happen() -> None:
            paused, self._faults.planned = self._current, type(self._faults.planned)()
            if until == "begun":

                async def wait() -> None:
                    await patiently(lambda: paused.ended)

                self._plan(Fault(wait))
            second = self._start()

            def handed_over() -> bool:
                done = second.idle if until == "handled" else not self._faults.planned
                return done or second.ended

            await patiently(handed_over)

        return self._plan(Fault(happen, when, step))

    def forget(self) -> None:
        """Forgets the planned faults that have not happened."""
        self._faults.planned.clear()

    def _plan(self, fault: Fault) -> Fault:
        self._faults.planned.append(fault)
        return fault

    # --- what happens ----------------------------------------------------------------------

    async def handled(self) -> None:
        """Returns when everything is handled: every change and row, or their dead letters.

        Starts another process if one was killed or replaced. Raises :class:`NotHandled` if the
        scope is halted, or after ``seconds``.
        """
        replaced = 0
        deadline = time.monotonic() + self._seconds
        while True:
            process = self._current
            await self._until(
                lambda: self._current.idle or self._current.ended,
                seconds=max(deadline - time.monotonic(), 0),
            )
            if process is not self._current:
                continue
            if not process.ended:
                if all(each.ended for each in self._processes[:-1]):
                    return
                await self._until(
                    lambda: all(each.ended or each.idle for each in self._processes[:-1])
                )
                for each in self._processes[:-1]:
                    await each.stop()  # with nothing to write, no fence tells it
            elif process.killed or (process.replaced and replaced < _MOST_REPLACED):
                replaced += process.replaced
                self._start()
            else:
                raise NotHandled(process.trouble or "the process has ended")

    async def saved(self) -> None:
        """Returns when everything is handled, and the checkpoint says so."""
        await self.handled()
        await self._until(lambda: self._current.saved)

    async def waits(self) -> None:
        """Returns when a call, or the start, has found that the destination is down."""
        await self._until(lambda: self._current.waits)

    async def stop(self) -> None:
        """Stops the process as SIGTERM does: it drains and saves."""
        await self._current.stop()

    def kill_now(self) -> None:
        """Kills the process at once. :meth:`handled` starts another one."""
        self._current.kill()

    async def restart(self, *, repeat: int = 0) -> None:
        """Stops the process and starts another one. The last ``repeat`` changes come again, as
        after a crash before a save."""
        if not self._current.ended:
            await self._current.stop()
        if repeat:
            self._disk.set_back(SCOPE, self.changes.oplog.entries, repeat)
        self._start()

    async def snapshot(self) -> None:
        """Takes a snapshot: every document comes as a row. Returns when all are handled."""
        await self.handled()
        if refused := self._current.snapshot():
            raise NotHandled(refused)
        await self.handled()

    # --- what can be asserted --------------------------------------------------------------

    @property
    def delivered(self) -> Sequence[ChangeEvent]:
        """Every event with which the handler was called so far, with repetitions."""
        return self._faults.delivered

    async def dead_letters(self) -> Sequence[Letter]:
        """The dead letters, in the order in which they were set aside."""
        letters = await self._disk.letters.letters()
        return [Letter(ChangeEvent.from_raw(e.raw), e.error, e.attempts) for e in letters]

    @property
    def handler(self) -> Handler | None:
        """The handler without the planned faults; ``None`` before the process has opened it."""
        return self._current.handler

    # --- what they share -------------------------------------------------------------------

    @property
    def _current(self) -> Process:
        return self._processes[-1]

    def _start(self) -> Process:
        process = Process(self._target, self.settings, self.changes.oplog, self._disk, self._faults)
        self._processes.append(process)
        self._tasks.start_soon(process.run, name=f"process {len(self._processes)}")
        return process

    async def _until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        if await until(condition, self._seconds if seconds is None else seconds):
            return
        raise NotHandled(f"not handled within {self._seconds} s: {self._current.condition}")
