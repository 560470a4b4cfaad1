"""An asyncio event loop in virtual time, without sockets, threads or a clock."""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

MOST_STEPS_AT_ONCE = 200_000
"""So many steps without a move of the time are a busy loop."""


class Stuck(AssertionError):
    """Nothing can happen any more, or the time does not move."""


class Call:
    """An :class:`asyncio.Handle` with what this loop needs of one: most of a run are callbacks."""

    __slots__ = ("args", "callback", "context", "gone", "time")

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context | None,
        time: float = 0.0,
    ) -> None:
        self.callback, self.args, self.time = callback, args, time
        self.context = copy_context() if context is None else context
        self.gone = False

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return self.time


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    numbers = count()

    def __init__(self, *args: Any, **named: Any) -> None:
        self.number = next(NumberedTask.numbers)
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.AbstractEventLoop):
    """When nothing is ready, the time is that of the next timer. Timers of one time are in an order
    of the seed. ``steps`` counts the callbacks; ``interrupts`` are made between two of them.
    """

    def __init__(self, seed: int, start: float = 1_764_500_000.0) -> None:
        self._ready: deque[Call] = deque()
        self._timers: list[tuple[float, float, int, Call]] = []
        self._random = random.Random(f"timers {seed}")
        self._numbers = count()
        self._now = start
        self._running = self._closed = False
        self.steps = 0
        self.interrupts: list[tuple[int, Callable[[], None]]] = []
        """A heap of step numbers and what happens then."""
        self.errors: list[dict[str, Any]] = []
        self._owner: Callable[[Context], int] = lambda context: 0
        self._frozen: dict[int, list[Call]] = {}

    def interrupt(self, step: int, call: Callable[[], None]) -> None:
        """Makes a call before the step with this number, outside all tasks."""
        self.interrupts.append((step, call))
        self.interrupts.sort(key=lambda each: each[0])

    def freeze(self, owner: ContextVar[int], number: int) -> None:
        """From now on nothing runs in contexts in which ``owner`` is ``number``."""
        self._owner = lambda context: context.get(owner, 0)
        self._frozen[number] = []

    def thaw(self, number: int) -> None:
        """What would have run meanwhile runs now."""
        self._ready.extend(self._frozen.pop(number, ()))

    # --- what asyncio and anyio use -------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Any:
        call = Call(callback, args, context)
        self._ready.append(call)
        return call

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Any:
        timer = Call(callback, args, context, when)
        entry = when, self._random.random(), next(self._numbers), timer
        heapq.heappush(self._timers, entry)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[T]:
        return NumberedTask(coro, loop=self, name=name, context=context)

    def get_task_factory(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    # --- running --------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it to its end, and cancels what is left over."""
        asyncio.events._set_running_loop(self)
        self._running = True
        try:
            main = self.create_task(coroutine)
            self._run_until(main)
            while left := [each for each in asyncio.all_tasks(self) if not each.done()]:
                for task in sorted(left, key=hash):
                    task.cancel()
                self._run_until(*left)
            return main.result()
        finally:
            self._running, self._closed = False, True
            asyncio.events._set_running_loop(None)
            self._ready.clear()
            self._timers.clear()

    def _run_until(self, *tasks: asyncio.Task[Any]) -> None:
        at_once, ready, timers, interrupts = 0, self._ready, self._timers, self.interrupts
        left = list(tasks)
        while left:
            if left[-1].done():
                left.pop()
                continue
            if not ready:
                while timers and timers[0][3].gone:
                    heapq.heappop(timers)
                if not timers:
                    raise Stuck("nothing is ready, and there is no timer")
                if timers[0][0] > self._now:
                    self._now, at_once = timers[0][0], 0
                while timers and timers[0][0] <= self._now:
                    ready.append(heapq.heappop(timers)[3])
            for _ in range(len(ready)):
                self.steps += 1
                at_once += 1
                while interrupts and interrupts[0][0] <= self.steps:
                    interrupts.pop(0)[1]()
                call = ready.popleft()
                if call.gone:
                    continue
                if self._frozen:
                    waiting = self._frozen.get(self._owner(call.context))
                    if waiting is not None:
                        waiting.append(call)
                        continue
                try:
                    call.context.run(call.callback, *call.args)
                except Exception as error:  # noqa: BLE001 - a callback's, as asyncio reports it
                    self.call_exception_handler({"message": str(error), "exception": error})
            if at_once > MOST_STEPS_AT_ONCE:
                raise Stuck(f"a busy loop: {at_once} steps without a move of the time")
