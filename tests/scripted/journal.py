"""The record of every command that arrived, and waiting for one to arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it arrived; `at` is `time.monotonic()`."""

    at: float
    member: int
    connection: int
    name: str
    database: str
    document: Mapping[str, Any]

    @property
    def change_stream(self) -> Mapping[str, Any] | None:
        """The `$changeStream` stage of an aggregate, None for any other command."""
        if self.name != "aggregate" or not self.document.get("pipeline"):
            return None
        stage: Mapping[str, Any] | None = self.document["pipeline"][0].get("$changeStream")
        return stage


class Journal:
    """Commands in the order of their arrival. It belongs to the server's loop."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._arrived = asyncio.Event()

    def record(self, command: Command) -> None:
        """Add a command and wake who waits."""
        self._commands.append(command)
        self._arrived.set()
        self._arrived = asyncio.Event()

    def commands(self, name: str | None = None) -> list[Command]:
        """All commands so far, or those of one name."""
        return [c for c in self._commands if name is None or c.name == name]

    def clear(self) -> None:
        """Forget them."""
        self._commands.clear()

    async def wait_for(
        self, predicate: Callable[[Command], bool], count: int, timeout_seconds: float
    ) -> list[Command]:
        """The first `count` matching commands, waiting until they have arrived."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                found = [c for c in self._commands if predicate(c)]
                if len(found) >= count:
                    return found[:count]
                await self._arrived.wait()
