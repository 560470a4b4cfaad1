"""Scripted faults by command name and count, like mongod's failCommand."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import ConnectionCutError, ServerError
from .journal import Command


@dataclass(slots=True)
class Fault:
    """An error, a cut connection or silence (half-open) for the next commands of one name.

    Without ``times`` it strikes until it is disarmed. ``skip`` commands pass first. ``hits`` counts
    how often it struck.
    """

    command: str
    skip: int = 0
    times: int | None = 1
    member: int | None = None
    where: Callable[[Command], bool] | None = None
    code: int | None = None
    message: str = ""
    labels: Sequence[str] = ()
    close_connection: bool = False
    silent: bool = False
    hits: int = 0
    disarmed: bool = False
    seen: int = 0

    def disarm(self) -> None:
        """Stops the fault. Safe from any thread: one flag is set and never cleared."""
        self.disarmed = True

    def takes(self, command: Command) -> bool:
        """Whether the fault strikes this command; also counts the command."""
        if self.disarmed or (self.times is not None and self.hits >= self.times):
            return False
        if command.name != self.command or self.member not in (None, command.member):
            return False
        if self.where is not None and not self.where(command):
            return False
        self.seen += 1
        if self.seen <= self.skip:
            return False
        self.hits += 1
        return True

    async def strike(self) -> None:
        """Applies the scripted fault to the command: raises, cuts, or hangs."""
        if self.silent:
            await asyncio.Event().wait()  # until the client or the server closes
        if self.close_connection:
            raise ConnectionCutError
        if self.code is not None:
            raise ServerError(self.code, self.message, labels=self.labels)
