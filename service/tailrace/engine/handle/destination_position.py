"""Asks a handler's destination for the position that it stores with its data."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from tailrace.engine.handle.isolation import apart
from tailrace.engine.handle.outage import Outages
from tailrace.engine.ports import Handler, RunIdentity
from tailrace.errors import (
    CheckpointFenced,
    Fenced,
    HandlerFailed,
    InvalidPosition,
    PositionMoved,
    ScopeHalted,
    TailraceError,
    describe,
)
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.gap import Gap

T = TypeVar("T")


@dataclass(slots=True)
class DestinationPosition:
    """The position of one handler's destination in one run of a scope. Outages are waited out."""

    handler: Handler
    identity: RunIdentity
    outages: Outages
    _loaded: SinkPosition | None = None
    _stored: ChangeEvent | None = None
    """The last event of the last successful call; ``None`` if there was none since the load."""

    async def opened(self) -> None:
        """Returns when the handler is open. Until then its destination counts as down."""
        if self.handler.ready is not None:
            await self._asked("its opening", self.handler.ready)

    async def skipped(self, gap: Gap) -> None:
        """Tells the handler about a gap, if it wants to know; raises :class:`HandlerFailed`."""
        own = self.handler.position
        if own is not None and own.skipped is not None:
            await self._asked("a gap", own.skipped, gap)

    async def load(self) -> SinkPosition | None:
        """The position; ``None`` if the destination has stored nothing or keeps no position.

        Raises :class:`HandlerFailed` if the call fails, :class:`CheckpointFenced` if it says that
        another process writes there, and :class:`ScopeHalted` for an invalid result.
        """
        if self.handler.position is None:
            return None
        try:
            self._loaded = await self._asked("its own position", self.handler.position.load)
        except InvalidPosition as error:
            raise ScopeHalted(
                f"scope {self.identity.scope!r}: handler {self.handler.name!r}: its begin() "
                f"returned no position of this scope: {error}. Let it return None where nothing is "
                "stored, else the batch.position that was stored last"
            ) from error
        return self._loaded

    def stored(self, last: ChangeEvent) -> None:
        """Notes that a call stored everything up to this event."""
        self._stored = last

    async def missing(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """The events that the destination lacks: a failed attempt may have stored some.

        Without a position of the destination: all. Raises :class:`PositionMoved` if the position is
        none that this run can have left there.
        """
        if self.handler.position is None or not events:
            return events
        former, stored = self._loaded, self._stored
        position = await self.load()
        for index in reversed(range(len(events))):
            if position is not None and position.is_at(events[index]):
                return events[index + 1 :]
        at_stored = stored is not None and position is not None and position.is_at(stored)
        if position != former and not at_stored:
            raise PositionMoved(
                f"scope {self.identity.scope!r}: the position of handler {self.handler.name!r} "
                "changed during the run: its destination was restored, or another process writes "
                "there. The scope starts again from the stored position"
            )
        return events

    def fenced(self, error: Fenced) -> CheckpointFenced:
        """What the watcher gets for the handler's own error."""
        return CheckpointFenced(
            f"scope {self.identity.scope!r}: handler {self.handler.name!r} was fenced by its "
            f"destination: another process writes there now: {describe(error)}"
        )

    async def _asked(self, what: str, question: Callable[..., Awaitable[T]], *given: Any) -> T:
        call = apart(question, f"{self.handler.name} {what}")

        async def answer() -> tuple[T | None, BaseException | None]:
            try:
                return await call(self.identity, *given), None
            except (TailraceError, anyio.get_cancelled_exc_class()):
                raise
            except Fenced as error:
                raise self.fenced(error) from error
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises
                return None, error

        found, error = await answer()
        if error is not None and self.outages.is_one(error):
            with self.outages.outage(error) as outage:
                while error is not None and self.outages.is_one(error):
                    await outage.wait(error)
                    found, error = await answer()
                outage.over()
        if error is not None:
            raise HandlerFailed(self.handler.name, what, error) from error
        return found  # type: ignore[return-value] # without an error it is the answer
