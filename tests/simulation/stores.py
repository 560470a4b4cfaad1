"""The stores as one process sees them: calls take time, fail, hang, or have an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tailrace.errors import TailraceError
from tests.simulation.faults import Failing, Faults, Gate


class SimulatedStore:
    """One part of the store in memory, as one process reaches it.

    Its methods are those of ``inner``. A failed call raises ``error``; ``failed`` is told which.
    """

    def __init__(
        self,
        inner: Any,
        gate: Gate,
        faults: Faults,
        error: type[TailraceError],
        failed: Callable[[str], None],
        *,
        at_once: Collection[str] = (),
    ) -> None:
        self._inner = inner
        self._gate = gate
        self._faults = faults
        self._error = error
        self._failed = failed
        self._at_once = at_once

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name in self._at_once:
            return method

        async def call(*given: Any, **named: Any) -> Any:
            self._gate.require()
            try:
                await self._faults.before()
                self._gate.require()
                result = await method(*given, **named)
                await self._faults.after()
            except Failing as failing:
                self._failed(name)
                how = "its answer was lost" if failing.done else "nothing was done"
                raise self._error(f"the store failed in {name!r}: {how}") from None
            except BaseException:
                self._failed(name)  # cancelled: its outcome is not known
                raise
            self._gate.require()
            return result

        return call
