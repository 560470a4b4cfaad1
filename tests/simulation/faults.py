"""When what the engine speaks to is slow, fails, hangs, or answers an error for what it did."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import anyio


class Killed(Exception):
    """The process that makes the call does not exist any more."""


class Failing(Exception):
    """The call fails. ``done``: what it asked for was done, all the same."""

    def __init__(self, *, done: bool = False) -> None:
        self.done = done


class Outage(StrEnum):
    """How a part is away."""

    ERROR = "error"
    """Calls fail at once."""
    HANG = "hang"
    """Calls have no answer until it is back; then they fail, or are done."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The share of calls with a fault. ``hang_seconds``: how long such a call may take."""

    fail: float = 0.0
    lie: float = 0.0
    """Calls that are done, but answered by an error."""
    hang: float = 0.0
    hang_seconds: float = 40.0
    latency_seconds: float = 0.02


@dataclass(eq=False)
class Faults:
    """The faults of one part. ``outages``: from when until when it is away, in virtual time."""

    name: str
    random: random.Random
    rates: Rates = Rates()
    outages: Sequence[tuple[float, float, Outage]] = ()
    healed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _ended: anyio.Event = field(default_factory=anyio.Event)

    async def before(self) -> None:
        """On the way to the part. Raises :class:`Failing` for a call that is not done."""
        await self.delay()
        while (outage := self.outage) is not None:
            self.count(f"outage: {outage[2]}")
            if outage[2] is Outage.ERROR:
                raise Failing
            await self._hang(outage[1] - anyio.current_time())
            if self.happens(0.5):
                raise Failing
        if self.happens(self.rates.hang):
            self.count("hang")
            await self._hang(self.random.uniform(1, self.rates.hang_seconds))
        if self.happens(self.rates.fail):
            self.count("failure")
            raise Failing

    async def after(self) -> None:
        """On the way back. Raises :class:`Failing` for an answer that is lost."""
        if self.happens(self.rates.lie):
            self.count("lost answer")
            raise Failing(done=True)
        await self.delay()

    async def delay(self) -> None:
        """No time, some turns of the event loop, or some virtual time."""
        chosen = self.random.random()
        if chosen < 0.3 or self.rates.latency_seconds == 0:
            return
        if chosen < 0.6:
            for _ in range(self.random.randint(1, 4)):
                await asyncio.sleep(0)
        else:
            await anyio.sleep(self.random.uniform(0, self.rates.latency_seconds))

    def happens(self, rate: float) -> bool:
        """Whether a fault of this rate happens now."""
        return rate > 0 and not self.healed and self.random.random() < rate

    def heal(self) -> None:
        """From now on there are no faults; calls without an answer go on."""
        self.healed = True
        self._ended.set()

    async def _hang(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._ended.wait()

    @property
    def outage(self) -> tuple[float, float, Outage] | None:
        """The outage that lasts now."""
        if self.healed:
            return None
        now = anyio.current_time()
        return next((each for each in self.outages if each[0] <= now < each[1]), None)

    def count(self, what: str) -> None:
        """Counts what has happened to the part."""
        self.counts[f"{self.name}: {what}"] += 1


@dataclass(eq=False)
class Gate:
    """Whether a process exists: after :meth:`close` nothing that it does has an effect.

    ``running``: all that it does. It is cancelled if the process is forced to end.
    """

    is_open: bool = True
    running: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def require(self) -> None:
        """Raises :class:`Killed` if the process was killed."""
        if not self.is_open:
            raise Killed("the process was killed")

    def close(self) -> None:
        """The process is killed."""
        self.is_open = False
