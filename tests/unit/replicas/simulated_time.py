"""An event loop whose time passes when nothing is to be done, with processes that can be frozen."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

import anyio

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")
"""To which process a task belongs; tasks that it starts inherit that."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting, lets the time pass."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "all tasks wait for each other"
            self.passed += timeout
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    """What a frozen process has to do waits until it is thawed, as after SIGSTOP and SIGCONT."""

    def __init__(self) -> None:
        self._simulated = _Selector()
        super().__init__(self._simulated)
        self._frozen: dict[str, list[tuple[Callable[..., object], Context]]] = {}

    def time(self) -> float:
        return self._simulated.passed

    def freeze(self, process: str) -> None:
        self._frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        for callback, context in self._frozen.pop(process, ()):
            super().call_soon(callback, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return super().call_soon(*self._held(callback, args, context), context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return super().call_at(when, *self._held(callback, args, context), context=context)

    def _held(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> tuple[Callable[..., object]]:
        """The callback, which looks first whether its process is frozen."""
        in_context = context or copy_context()
        process = in_context.get(PROCESS, "")
        if not process:
            return (lambda: callback(*args),)

        def run() -> None:
            if process in self._frozen:
                self._frozen[process].append((run, in_context))
            else:
                callback(*args)

        return (run,)


def simulated(main: Callable[[], Awaitable[None]]) -> None:
    """Runs ``main`` in simulated time, from 0 on."""
    anyio.run(main, backend_options={"loop_factory": SimulatedLoop})


def the_loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


async def until(condition: Callable[[], object]) -> None:
    """Waits in simulated time; only a failing test reaches the limit."""
    with anyio.fail_after(100):
        while not condition():  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.05)
