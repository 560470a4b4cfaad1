"""Asks a handler's destination for the position that it stores with its data."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import anyio

from tailrace.engine.handle.isolation import in_own_task
from tailrace.engine.handle.outage import Outages
from tailrace.engine.ports import Handler, RunIdentity
from tailrace.engine.position.start_position import is_as_noted
from tailrace.errors import (
    CheckpointFenced,
    DestinationUnavailable,
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
from tailrace.model.progress import Progress
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.subscription import Subscription
from tailrace.observe.delay import reported_after

T = TypeVar("T")


class DestinationFenced(CheckpointFenced):
    """A destination has another owner: it takes nothing more from this process."""


Fits = Callable[[SinkPosition | None], bool]

_QUESTION = "its own position"

SLOW_SECONDS = 10.0
"""After this time a call that has not returned is reported."""


@dataclass(slots=True)
class DestinationPosition:
    """The position of one handler's destination in one run of a scope. Outages are waited out.

    If the destination is down when the run starts, the run starts from the checkpoint, as if the
    destination were where the checkpoint notes it. The handler's lane begins once :meth:`confirm`
    has returned.
    """

    handler: Handler
    identity: RunIdentity
    outages: Outages
    loaded: SinkPosition | None = None
    """As of the last answer; ``None`` if the destination has stored nothing."""
    _known: SinkPosition | None = None
    """Where the destination stands after the last answer and the calls that worked since."""
    _accepted: SinkPosition | None = None
    """Where it stands after the next commit."""
    _fits: Fits | None = None
    """Whether a position is as the run assumes; ``None`` if nothing is assumed."""

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
        if self.handler.position is not None:
            self._stands_at(await self._asked(_QUESTION, self.handler.position.load))
        return self.loaded

    async def load_unless_down(self, noted: Subscription | None, *, waits: bool) -> bool:
        """Loads the position, as :meth:`load`; returns False if the destination is down now.

        Then the run assumes the position that the checkpoint notes. One that an operator chose
        must be saved beside the destination's: then this waits for a destination that is down, if
        it ``waits``, or else raises :class:`DestinationUnavailable`.
        """
        if self.handler.position is None:
            return True
        chosen = noted is not None and noted.position.chosen
        if chosen and waits:
            await self.load()
            return True
        position, error = await self._answer(_QUESTION, self.handler.position.load)
        if error is None:
            self._stands_at(position)
            return True
        if not self.outages.is_one(error):
            raise HandlerFailed(self.handler.name, _QUESTION, error) from error
        self.outages.begin(error)
        if chosen:
            name = self.handler.name
            raise DestinationUnavailable(f"handler {name!r}: {describe(error)}") from error
        self._fits = partial(is_as_noted, noted)
        return False

    async def confirm(self) -> None:
        """Waits for a destination that was down when the run started. Raises as :meth:`load`, and
        :class:`PositionMoved` if its position is not as the run assumes."""
        fits, self._fits = self._fits, None
        if fits is not None and not fits(await self.load()):
            raise PositionMoved(
                f"scope {self.identity.scope!r}: the destination of handler {self.handler.name!r} "
                "was down when the scope started, and has another position than the checkpoint "
                "notes. The scope starts again from the stored position"
            )

    def goes_on_from(self, former: "DestinationPosition") -> None:
        """Takes over what the run knew in which the handler was before this one."""
        self._stands_at(former._known)

    def _stands_at(self, position: SinkPosition | None) -> None:
        self.outages.over()  # it answers; it may have been down when this run, or another, asked
        self.loaded = self._known = self._accepted = position

    def stored(self, events: Sequence[ChangeEvent]) -> None:
        """Notes that a call stored these events."""
        self._known = self._accepted = SinkPosition.after_batch(events, self._known)

    def accepted(self, events: Sequence[ChangeEvent]) -> None:
        """Notes that the next commit stores these events."""
        self._accepted = SinkPosition.after_batch(events, self._accepted)

    def committed(self) -> None:
        """Notes that a commit stored what was accepted."""
        self._known = self._accepted

    async def missing(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """The events that the destination lacks: a failed call with them may have stored some.

        Without a position of the destination: all. Raises :class:`PositionMoved` if the destination
        stands neither where the last successful call left it, nor after some of these events.
        """
        if self.handler.position is None or not events:
            return events
        known = self._known
        position = await self.load()
        if _is_same(position, known):
            return events
        for index in reversed(range(len(events))):
            if position is not None and position.is_at(events[index]):
                if _is_same(position, SinkPosition.after_batch(events[: index + 1], known)):
                    return events[index + 1 :]
                break
        raise self._moved(known, position)

    async def judged(self, error: Fenced, first: ChangeEvent | None) -> TailraceError:
        """What ends the run if a call was fenced: another owner, or a destination that was set
        back. The destination fences again, when it is asked, if it has another owner.

        ``first``: the first event of the call, if it had any.
        """
        if self.handler.position is not None:
            known = self._known
            position = await self.load()
            if _was_set_back(known, position, first):
                return self._moved(known, position)
        return self._fenced(error)

    def _fenced(self, error: Fenced) -> DestinationFenced:
        return DestinationFenced(
            f"scope {self.identity.scope!r}: handler {self.handler.name!r} was fenced by its "
            f"destination: another process writes there now: {describe(error)}"
        )

    def _moved(self, known: SinkPosition | None, position: SinkPosition | None) -> PositionMoved:
        what = (
            f"scope {self.identity.scope!r}: the position of handler {self.handler.name!r} changed "
            f"during the run, from {_where(known)} to {_where(position)}: its destination was "
        )
        if position is None or position.token == NO_TOKEN:
            return PositionMoved(
                f"{what}emptied. The scope continues from its checkpoint; what the destination had "
                f"before comes with a snapshot: 'tailrace snapshot start {self.identity.scope}'"
            )
        return PositionMoved(
            f"{what}restored, or another process writes there. The scope starts again from the "
            "stored position"
        )

    async def _asked(self, what: str, question: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        answer, error = await self._answer(what, question, *arguments)
        if error is not None and self.outages.is_one(error):
            with self.outages.outage(error) as outage:
                while error is not None and self.outages.is_one(error):
                    await outage.wait(error)
                    answer, error = await self._answer(what, question, *arguments)
                outage.over()
        if error is not None:
            raise HandlerFailed(self.handler.name, what, error) from error
        return answer  # type: ignore[return-value] # without an error it is the answer

    async def _answer(
        self, what: str, question: Callable[..., Awaitable[T]], *arguments: Any
    ) -> tuple[T | None, BaseException | None]:
        """The answer to one call, or its error, unless that decides about the scope."""
        began = perf_counter()  # noqa: F841 - for :mod:`tailrace.engine.handle.frames`
        slow = reported_after(
            SLOW_SECONDS,
            "handler.answer_delayed",
            scope=self.identity.scope,
            handler=self.handler.name,
            asked_for=what,
            consequence="the handler's lane waits",
        )
        try:
            with slow:
                call = in_own_task(question, f"{self.handler.name} {what}")
                return await call(self.identity, *arguments), None
        except InvalidPosition as error:
            raise ScopeHalted(
                f"scope {self.identity.scope!r}: handler {self.handler.name!r}: its begin() "
                f"returned no position of this scope: {error}. Let it return None where nothing is "
                "stored, else the batch.position that was stored last"
            ) from error
        except (TailraceError, anyio.get_cancelled_exc_class()):
            raise
        except Fenced as error:
            raise self._fenced(error) from error
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises
            return None, error


def _is_same(one: SinkPosition | None, other: SinkPosition | None) -> bool:
    """Whether the destination has the same changes and rows at both."""
    if one is None or other is None:
        return one is other
    return one.token == other.token and one.rows == other.rows


def _was_set_back(
    known: SinkPosition | None, position: SinkPosition | None, first: ChangeEvent | None
) -> bool:
    """Whether the destination stands before the call; not if somebody has stored more."""
    if _is_same(known, position):
        return False
    if position is None or position.token in (NO_TOKEN, known and known.token):
        return True
    if known is not None:
        before = Progress(known.token, known.time).covers(position.token, position.time)
        return before is not False
    # A backup was restored into a destination that had nothing.
    if first is None or position.is_at(first):
        return False
    at = Progress(first.token, first.cluster_time or first.token.cluster_time)
    return at.covers(position.token, position.time) is True


def _where(position: SinkPosition | None) -> str:
    """A position, for people."""
    if position is None:
        return "none"
    if position.token == NO_TOKEN:
        return "rows of a snapshot"
    time = position.time
    at = f" of {time.as_datetime().isoformat()}" if time is not None else ""
    return f"event {position.token.digest}{at}"
