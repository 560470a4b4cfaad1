"""A position in the stream before which a handler has handled everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import reduce
from typing import TypeVar

from bson.timestamp import Timestamp

from tailrace.model.progress import Progress
from tailrace.model.snapshot import SnapshotProgress
from tailrace.model.start import StartPoint
from tailrace.model.token import ResumeToken

T = TypeVar("T")

_MOST_REREAD = 20
"""How many moves back a position remembers."""


@dataclass(frozen=True, slots=True)
class Reread:
    """The changes that came again, or come now, because an operator moved the scope back.

    ``at``: when that was. They are those from ``since`` up to ``until``, where the scope was moved
    the next time; ``None`` if it was not moved since.
    """

    at: datetime
    since: Timestamp
    until: Timestamp | None = None


class PositionKind(StrEnum):
    """What a position refers to."""

    EVENT = "event"
    IDLE = "idle"
    """No event: the post-batch token of an empty batch, or a time before the first token."""
    INVALIDATE = "invalidate"
    """The token of an invalidate event, or possibly of one: only ``startAfter`` accepts it."""
    SET_ASIDE = "set_aside"
    """The token of an event that an operator set aside, since the server cannot send it. Nor can
    the server resume from it: it would have to make the event again."""
    RESET = "reset"
    """No position: an operator reset it. Its version fences the process that follows the scope."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the stream continues for a handler.

    ``event_token``: the token of the last handled event. ``high_water``: where to resume (the
    post-batch token if there is one, else the event's). ``cluster_time``: used when neither token
    is usable.

    ``stored``: of a handler with a position of its own, the digest of the token that its
    destination has stored if it has exactly what it was given up to here, or
    :attr:`tailrace.model.SinkPosition.before_move`. ``chosen``: an operator chose this position,
    and not that of the destination. ``handled``: the digests of the tokens of single later events
    that are handled, too, and ``until`` the time of the last of these.
    ``snapshot``: how far the existing documents are delivered, if the handler has had a snapshot.
    ``started``: where the handler began, or the earliest position to which it was moved; earlier
    changes are not delivered. ``reread``: by time, the last moves back, which fill gaps that were
    recorded before.
    """

    kind: PositionKind
    event_token: ResumeToken | None
    high_water: ResumeToken | None
    cluster_time: Timestamp | None
    stored: str = ""
    chosen: bool = False
    handled: frozenset[str] = frozenset()
    until: Timestamp | None = None
    snapshot: SnapshotProgress | None = None
    started: Timestamp | None = field(default=None, compare=False)
    reread: Mapping[str, Reread] = field(default_factory=dict, compare=False)

    @property
    def progress(self) -> Progress:
        """What the handler has. Its time is that of the event or of the idle token."""
        is_event = self.kind is PositionKind.EVENT
        token = (self.event_token or self.high_water) if is_event else self.token
        return Progress(token, self.cluster_time, self.handled, self.until)

    @property
    def token(self) -> ResumeToken | None:
        """The token from which a stream can continue, if there is one."""
        return self.high_water or self.event_token

    @property
    def start_point(self) -> StartPoint:
        """Where the stream continues, with the same pipeline and options."""
        if self.kind is PositionKind.INVALIDATE:
            return StartPoint(start_after=self.token)
        if self.kind is PositionKind.SET_ASIDE:
            return StartPoint(at_operation_time=self.cluster_time, past=self.token)
        if self.token is not None:
            return StartPoint(resume_after=self.token)
        return StartPoint(at_operation_time=self.cluster_time)

    def reread_from(self, to: Timestamp | None, at: datetime) -> Mapping[str, Reread]:
        """What is reread if an operator moves the scope from here to that time."""
        here = self.cluster_time
        found = {
            name: replace(each, until=here or each.since) if each.until is None else each
            for name, each in self.reread.items()
        }
        if here is not None and to is not None and to < here:
            found[at.isoformat()] = Reread(at, to)
        return dict(list(found.items())[-_MOST_REREAD:])

    def after_bookmark(
        self, token: ResumeToken | None, time: Timestamp | None, *, invalidated: bool
    ) -> Position:
        """The position after a bookmark; unchanged if the bookmark is known to be older."""
        if token is None:
            known = self.high_water is not None or self.cluster_time is not None
            return self if known else replace(self, cluster_time=time)
        # Until an event comes, a stream after an invalidate can continue only by `startAfter`.
        invalidated = invalidated or self.kind is PositionKind.INVALIDATE
        if self.high_water is not None and (
            token == self.high_water or token.precedes(self.high_water)
        ):
            return replace(self, kind=PositionKind.INVALIDATE) if invalidated else self
        kind = PositionKind.INVALIDATE if invalidated else PositionKind.IDLE
        time = token.cluster_time or self.cluster_time
        return replace(self, kind=kind, high_water=token, cluster_time=time)

    def is_before(self, other: Position) -> bool:
        """Whether it is known to be before the other one. One without a token is before all events
        of its time."""
        mine, theirs = self.cluster_time, other.cluster_time
        if mine is None or theirs is None:
            return mine is None and theirs is not None
        if mine != theirs:
            return mine < theirs
        one, two = self.token, other.token
        if one is None or two is None:
            return two is not None
        return one.precedes(two)

    def without_passed(self) -> Position:
        """Without single handled events that the position has passed."""
        time, until = self.cluster_time, self.until
        passed = until is not None and time is not None and time > until
        return replace(self, handled=frozenset(), until=None) if passed else self


def earliest(items: Iterable[T], at: Callable[[T], Position]) -> T:
    """The first item whose position (``at``) no other one is known to be before."""
    return reduce(lambda last, each: each if at(each).is_before(at(last)) else last, items)
