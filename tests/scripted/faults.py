"""Scripted faults by command name and count, in the manner of mongod's failCommand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import ConnectionCutError, ServerError
from .journal import Command

_SAME_NAME = {"ismaster": "hello"}


@dataclass(frozen=True, slots=True)
class Fault:
    """What shall happen to which commands. Without code, cut or silence it is a mere delay."""

    command: str
    skip: int = 0
    times: int | None = 1
    member: int | None = None
    where: Callable[[Command], bool] | None = None
    delay_seconds: float = 0.0
    code: int | None = None
    message: str = ""
    labels: tuple[str, ...] = ()
    close_connection: bool = False
    silent: bool = False

    def concerns(self, command: Command) -> bool:
        """Whether the command is one of those meant, counts aside."""
        return (
            _canonical(self.command) == _canonical(command.name)
            and self.member in (None, command.member)
            and (self.where is None or self.where(command))
        )

    async def strike(self) -> None:
        """Do to the command what was scripted: raise, hang, or just take time."""
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.silent:
            await asyncio.Event().wait()  # until the peer gives up or the server ends
        if self.close_connection:
            raise ConnectionCutError
        if self.code is not None:
            raise ServerError(self.code, self.message, labels=self.labels)


@dataclass(slots=True)
class ArmedFault:
    """A fault with its counters; `hits` says how often it struck."""

    fault: Fault
    seen: int = 0
    hits: int = 0
    _disarmed: bool = field(default=False, repr=False)

    def disarm(self) -> None:
        """Let it strike no more. Safe from any thread: one flag is set, never cleared."""
        self._disarmed = True

    def takes(self, command: Command) -> bool:
        """Whether it strikes this command; counts."""
        if self._disarmed or (self.fault.times is not None and self.hits >= self.fault.times):
            return False
        if not self.fault.concerns(command):
            return False
        self.seen += 1
        if self.seen <= self.fault.skip:
            return False
        self.hits += 1
        return True


class Faults:
    """The armed faults, asked in the order of arming: the first that takes a command has it."""

    def __init__(self) -> None:
        self._armed: list[ArmedFault] = []

    def arm(self, fault: Fault) -> ArmedFault:
        """Add a fault."""
        armed = ArmedFault(fault)
        self._armed.append(armed)
        return armed

    def clear(self) -> None:
        """Disarm all."""
        for armed in self._armed:
            armed.disarm()
        self._armed.clear()

    def for_command(self, command: Command) -> Fault | None:
        """The fault that strikes this command, if any."""
        return next((a.fault for a in self._armed if a.takes(command)), None)


def _canonical(name: str) -> str:
    lowered = name.lower()
    return _SAME_NAME.get(lowered, lowered)
