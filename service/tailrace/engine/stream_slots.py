"""The streams that handlers of a scope may read on their own at once, first come, first served."""

from collections.abc import Callable

import anyio

from tailrace.stream import Interrupt

LOOK_SECONDS = 5.0
"""How often one that waits looks for a stream whose handler does not need it."""


class StreamSlots:
    """A run whose destination is down ends if others wait for its slot: it waits for the next one,
    and neither an outage nor one that comes and goes holds the handlers that could catch up."""

    def __init__(self, most: int) -> None:
        self._free = anyio.Semaphore(most)
        self._holders: dict[Interrupt, Callable[[], bool]] = {}

    @property
    def full(self) -> bool:
        """Whether the next one has to wait."""
        return not self._free.value

    async def take(self, run: Interrupt, is_down: Callable[[], bool]) -> None:
        """Returns when the run may read its stream. ``is_down``: whether it has no use for it."""
        taken = False
        try:
            while not taken:  # if a handler cancels the other task, once more
                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(self._ask_for_one, name="wait for a stream")
                    await self._free.acquire()
                    taken = True
                    waiting.cancel_scope.cancel()
        except BaseException:
            if taken:
                self._free.release()
            raise
        self._holders[run] = is_down

    def give_back(self, run: Interrupt) -> None:
        """The run has closed its stream."""
        del self._holders[run]
        self._free.release()

    async def _ask_for_one(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            for run, is_down in self._holders.items():
                if is_down() and not run.is_set:
                    run.set()
                    break
