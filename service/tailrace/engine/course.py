"""A course: the handlers of a scope that one stream feeds, in one run after another.

A scope has one shared course, for all handlers that stand together, and one for each handler that
stands elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from tailrace.engine.checkpoint_claim import CheckpointClaim
from tailrace.engine.current_desired_state import CurrentDesiredState
from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.retry import Breaker, Retry
from tailrace.engine.handle.side_calls import SideCalls
from tailrace.engine.plan.router import Routed
from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import Handler, RunIdentity
from tailrace.engine.position.history_lost import LostHistory
from tailrace.engine.replayed_span import ReplayedSpan
from tailrace.engine.status.status import Status
from tailrace.engine.stream_slots import StreamSlots
from tailrace.event import ChangeEvent
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.stream import Interrupt, fingerprint


class Former(Protocol):
    """What a handler still does for a course that it has left: ``ended`` is set when that has
    ended, and ``failure`` then says why it failed, if it did. ``invalidated``: whether it came to
    an invalidate."""

    @property
    def ended(self) -> anyio.Event: ...
    @property
    def failure(self) -> Exception | None: ...
    @property
    def invalidated(self) -> bool: ...


Detach = Callable[[Routed, Exception | None, Former | None], None]
"""See :meth:`Course.detach`."""


@dataclass(slots=True, eq=False)
class FollowedScope:
    """What the courses of a scope share.

    ``call_slots``: by handler that gets one call at a time, held during a call. ``streams``: taken
    by each course that reads a stream of its own. ``tasks`` runs the handlers' lanes until
    ``stop``.
    """

    plan: ScopePlan
    runtime: Runtime
    claim: CheckpointClaim
    desired: CurrentDesiredState
    breakers: Mapping[str, Breaker]
    call_slots: Mapping[str, anyio.Semaphore]
    streams: StreamSlots
    status: Status
    side_calls: SideCalls
    begin_replays: Callable[[], None] = lambda: None
    """Begins the replays that are wanted, or go on."""
    tasks: TaskGroup = field(init=False)
    stop: Interrupt = field(init=False)

    @property
    def identity(self) -> RunIdentity:
        """Of the scope as it is followed, in this epoch."""
        plan = self.plan
        of = fingerprint(plan.scope, plan.options)
        return RunIdentity(plan.scope.name, str(self.runtime.cluster), of, self.claim.epoch)

    def status_apart(self, name: str, recorder: HandlerRecorder) -> Status:
        """A new status for a course beside the shared one, of the subscription with this name."""
        of, clock, shared = self.plan.scope, self.runtime.clock, self.status
        lease = partial(self.runtime.lease, of.name)
        return Status(
            of, clock, {name: recorder}, lease=lease, counts=shared.counts, errors=shared.errors
        )

    def delivery(
        self, handler: Handler, identity: RunIdentity, errors: RecentErrors, waits: Interrupt
    ) -> Delivery:
        """Makes the deliveries to a handler. ``errors``: where its errors are noted; ``waits`` ends
        its waits."""
        letters, lease = self.runtime.letters, self.claim.lease
        call_slot = self.call_slots.get(handler.name)
        held = letters.held(identity.scope, handler.name)
        observed = self.claim.observed_by(handler.name)
        identity = replace(identity, observed_generation=observed, dead_letter_keys=held)
        breaker = self.breakers[handler.name]
        retry = Retry(
            identity, handler.name, letters, breaker, errors, waits, lease, handler.protection
        )
        kind = Delivery if handler.commit is None else CommitDelivery
        return kind(handler, retry, identity, self.runtime.share, lease, call_slot)

    async def again(
        self, handler: Handler, event: ChangeEvent, until: Interrupt
    ) -> BaseException | None:
        """Hands a change to a handler once, beside its course; returns the handler's error.

        An outage is waited out, but :class:`DeliveryInterrupted` is raised at the interrupt. Raises
        :class:`CheckpointFenced` if the scope is restarted meanwhile.
        """
        delivery = self.delivery(handler, self.identity, self.status.errors, until)
        if handler.protection is not None:
            event = handler.protection.of_noted(event)
        async with self.side_calls.call():
            return await delivery.again(event)
        return None


@dataclass(slots=True, eq=False)
class Course:
    """``routed``: the handlers that are in it. ``on_detach`` lets one go on in a course of its own;
    ``None`` in a course that no handler can leave. ``alone``: it is such a course beside the shared
    one. ``rows``: the reader of documents for all of them. ``replay``: the changes that come again
    in this course, which has an end then."""

    scope: FollowedScope
    routed: list[Routed]
    status: Status
    rows: RowSource
    on_detach: Detach | None = None
    alone: bool = False
    replay: ReplayedSpan | None = None
    history: LostHistory = field(default_factory=LostHistory)
    failures: int = 0
    trouble: str = ""
    """Why the last run failed: shown while the next one starts."""

    @property
    def names(self) -> list[str]:
        """The names of its handlers; one without a name in a scope without handlers."""
        return [each.name for each in self.routed] or [""]

    def is_down(self) -> bool:
        """Whether the destination of its only handler is down, and no replay has to end here."""
        recorder = self.status.recorders[self.names[0]]
        return self.replay is None and recorder.down_since is not None

    @property
    def as_argument(self) -> str:
        """What an operator names in a command: the scope, or the handler that is on its own."""
        scope = self.scope.plan.scope.name
        return f"{scope} --handler {self.names[0]}" if self.alone else scope

    @property
    def can_detach(self) -> bool:
        """Whether a handler can go on in a course of its own, and others stay."""
        return self.on_detach is not None and len(self.routed) > 1

    def detach(
        self, handler: str, error: Exception | None = None, former: Former | None = None
    ) -> None:
        """Lets a handler go on in a course of its own. ``error`` made it leave, if any; that course
        begins when the ``former`` part has ended."""
        assert self.on_detach is not None  # noqa: S101 - the callers have looked
        left = next(each for each in self.routed if each.name == handler)
        self.routed.remove(left)
        self.on_detach(left, error, former)
