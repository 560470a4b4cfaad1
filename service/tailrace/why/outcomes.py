"""Decides what became of one change for each handler, from what is stored and what is in flight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bson.timestamp import Timestamp

from tailrace.engine.plan.router import wants_of
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Position, ResumeToken, Route, SnapshotProgress, StartPoint
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.gap import SET_ASIDE, Gap
from tailrace.model.subscription import Subscription
from tailrace.why.answer import Landed, Outcome, State, iso_time


@dataclass(frozen=True, slots=True)
class HandlerPosition:
    """A handler as the process that follows it knows it.

    ``position``: up to where it has handled everything; ``None`` if nothing is read now.
    ``read_to``: up to where its stream is read. ``course``: its state, or that of the scope, and
    why, for people.
    """

    position: Position | None
    read_to: Timestamp | None
    course: str


class Followed(Protocol):
    """The scope as the process that follows it knows it."""

    @property
    def read_to(self) -> Timestamp | None:
        """Up to where the shared stream is read."""

    def of(self, handler: str) -> HandlerPosition:
        """What is known of a handler."""

    def in_flight(self, token: ResumeToken) -> Mapping[str, Outcome]:
        """By handler, how far an event is that is read and not handled by all that it comes to
        with this one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a scope and of one document. ``letters`` are those of the document.

    ``passed``: the digests of changes that the scope's pipeline lets through; ``None`` if unknown.
    ``elsewhere``: which process follows the scope, if this one does not.
    """

    routes: Sequence[Route]
    start: StartPoint
    checkpoint: Checkpoint | None
    gaps: Sequence[Gap]
    letters: Sequence[DeadLetter]
    landed: Sequence[Landed] = ()
    passed: frozenset[str] | None = None
    followed: Followed | None = None
    elsewhere: str = ""
    handlers: Mapping[str, Sequence[Route]] = field(init=False)
    """By handler, its routes from the scope."""

    def __post_init__(self) -> None:
        found: dict[str, list[Route]] = {}
        for route in self.routes:
            for handler in route.handlers:
                found.setdefault(handler, []).append(route)
        object.__setattr__(self, "handlers", found)

    @property
    def started(self) -> Timestamp | None:
        """From when on the scope's changes are delivered, as far as is known."""
        if self.checkpoint is not None:
            return self.checkpoint.position.started
        return self.start.at_operation_time

    def _subscription(self, handler: str) -> Subscription | None:
        return self.checkpoint.of(handler) if self.checkpoint is not None else None

    def started_at(self, handler: str) -> Timestamp | None:
        """From when on changes are delivered to a handler."""
        known = self._subscription(handler)
        return known.position.started if known is not None else self.started

    def snapshot_of(self, handler: str) -> SnapshotProgress | None:
        """The last snapshot of a handler."""
        known = self._subscription(handler)
        return known.position.snapshot if known is not None else None

    def _snapshot(self, handler: str) -> str:
        """What delivers documents to a handler that did not change since the start."""
        snapshot = self.snapshot_of(handler)
        if snapshot is None:
            return ""
        filtered = ", which has a filter," if snapshot.filter else ""
        which = f"snapshot {snapshot.id}{filtered} is {snapshot.state.value}"
        return f"; {which}, and delivers documents that were there before"

    def outcomes(self, event: ChangeEvent) -> Mapping[str, Outcome]:
        """By handler, what became of a change."""
        token, time = event.token, event.cluster_time or event.token.cluster_time
        flying = self.followed.in_flight(token) if self.followed is not None else {}
        return {
            handler: self._stored(handler, token.digest)
            or self._filtered(routes, event)
            or flying.get(handler)
            or self._by_position(handler, token, time)
            for handler, routes in self.handlers.items()
        }

    def _stored(self, handler: str, digest: str) -> Outcome | None:
        """Its dead letter, or its row in a lake."""
        letters = [letter for letter in self.letters if letter.handler == handler]
        for letter in letters:
            if letter.id != digest:
                continue
            if letter.attempts:
                tried = "once" if letter.attempts == 1 else f"{letter.attempts} times"
                return Outcome(State.DEAD_LETTER, f"tried {tried}: {letter.error}", letter.id)
            first = next(each for each in letters if each.key == letter.key)
            waits = f"it waits behind dead letter {first.id}, and was not tried"
            return Outcome(State.BEHIND_DEAD_LETTER, waits, letter.id)
        for row in self.landed:
            if (row.handler, row.id) == (handler, digest):
                return Outcome(State.HANDLED, f"it is event {row.ordinal} in {row.segment}")
        return None

    def _filtered(self, routes: Sequence[Route], event: ChangeEvent) -> Outcome | None:
        if self.passed is not None and event.token.digest not in self.passed:
            return Outcome(State.FILTERED, "the pipeline of the scope does not let it through")
        wants = wants_of(routes)
        if wants is None or wants(event):
            return None
        taken = "; or ".join(filter(None, map(_taken, routes)))
        return Outcome(State.FILTERED, f"its route takes only {taken}")

    def _came_again(self, handler: str, gap: Gap, time: Timestamp) -> bool:
        """Whether a handler was moved back after the gap, and has read on from before that time."""
        known = self._subscription(handler)
        reread = known.position.reread.values() if known is not None else ()
        return any(
            each.at > gap.recorded_at
            and each.since <= time
            and (each.until is None or time <= each.until)
            for each in reread
        )

    def _by_position(self, handler: str, token: ResumeToken, time: Timestamp | None) -> Outcome:
        """By what the handler has handled, what is read, and where it has started."""
        started = self.started_at(handler)
        if started is not None and time is not None and time < started:
            since = f"changes are delivered to it from {iso_time(started)} on"
            return Outcome(State.BEFORE_START, since + self._snapshot(handler))
        for gap in [each for each in self.gaps if each.concerns(handler)]:
            if gap.token == token and gap.policy == SET_ASIDE:
                return Outcome(State.IN_GAP, gap.reason)
            if time is not None and _within(gap, time) and not self._came_again(handler, gap, time):
                skipped = f"changes up to {iso_time(gap.until) or 'an unknown time'} were skipped"
                return Outcome(State.IN_GAP, f"{skipped} ({gap.policy}): {gap.reason}")
        subscription = self._subscription(handler)
        if subscription is not None and _has(subscription.position, token, time):
            until = iso_time(subscription.position.cluster_time)
            return Outcome(State.HANDLED, f"its position ({until}) is not before it")
        if self.followed is not None:
            here = self.followed.of(handler)
            if here.position is not None and _has(here.position, token, time):
                return Outcome(State.HANDLED, "it is handled; its position is saved after that")
            read = f"the stream is read up to {at}" if (at := iso_time(here.read_to)) else ""
            return Outcome(State.NOT_READ, "; ".join(filter(None, (read, here.course))))
        if subscription is None:
            if self.start.at_operation_time is None and self.checkpoint is None:
                return Outcome(State.BEFORE_START, "the scope has not started: it starts at 'now'")
            return Outcome(State.NOT_READ, "the handler has not started")
        until = iso_time(subscription.position.cluster_time)
        who = self.elsewhere or "no daemon answers here; it is read when one runs"
        if subscription.halted:
            who = f"the handler is halted: {subscription.halted}"
        return Outcome(State.AFTER_CHECKPOINT, f"it is after its position ({until}): {who}")


def _has(position: Position, token: ResumeToken, time: Timestamp | None) -> bool:
    return token.digest in position.handled or bool(position.progress.covers(token, time))


def _within(gap: Gap, time: Timestamp) -> bool:
    after = gap.since is None or time > gap.since
    return after and gap.until is not None and time <= gap.until


def _taken(route: Route) -> str:
    """What a route takes, for people."""
    operations = ", ".join(sorted(route.operations))
    namespaces = ", ".join(route.namespaces)
    return " of ".join(filter(None, (operations, namespaces)))
