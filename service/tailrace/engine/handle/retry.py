"""What happens when a handler call fails: further attempts, then a dead letter or a halt.

Dead letters keep the order: while a key has an unresolved letter, later events of the key (for that
handler) are stored after it without an attempt, until an operator replays or discards them.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from tailrace.engine.held_lease import HeldLease
from tailrace.engine.ports import DeadLetterStore, RunIdentity
from tailrace.errors import (
    DeliveryInterrupted,
    HandlerGaveUp,
    PermanentError,
    TemporaryError,
    describe,
)
from tailrace.event import ChangeEvent
from tailrace.event.field_protection import FieldProtection
from tailrace.event.naming import identified, named
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.failure_policy import FailurePolicy
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.observe.tracebacks import frames_of
from tailrace.stream import Interrupt


class Breaker:
    """Halts a scope if too many events of a handler fail: then the events are not the cause."""

    def __init__(self, policy: FailurePolicy, recorder: HandlerRecorder) -> None:
        self.policy = policy
        self.recorder = recorder
        self._row = 0
        self._handled = -1
        self._failed = 0
        self._recent: deque[int] = deque()

    def trips(self) -> str:
        """Notes one more failed event; returns why the scope must halt, or an empty string."""
        policy, outcomes = self.policy, self.recorder.outcomes
        self._row = self._row + 1 if outcomes["ok"] == self._handled else 1
        self._handled = outcomes["ok"]
        if self._row > policy.max_consecutive:
            return f"{policy.max_consecutive} events in a row became dead letters"
        # Dead letters are counted here when they are decided: several may be stored at once.
        self._failed += 1
        seen = outcomes["ok"] + self._failed
        recent = self._recent
        recent.append(seen)
        while recent[0] <= seen - policy.ratio_window:
            recent.popleft()
        if seen >= policy.ratio_window and len(recent) > policy.max_ratio * policy.ratio_window:
            return f"{len(recent)} of the last {policy.ratio_window} events became dead letters"
        return ""


@dataclass(slots=True)
class Retry:
    """Applies the failure policy of one handler on one scope; ``until`` ends its waits."""

    identity: RunIdentity
    handler: str
    letters: DeadLetterStore
    breaker: Breaker
    errors: RecentErrors
    until: Interrupt
    lease: HeldLease | None = None
    protection: FieldProtection | None = None
    """What has changed the events."""
    held: Collection[bytes | None] = field(init=False)
    """The keys that have dead letters, as last known from the store."""
    policy: FailurePolicy = field(init=False)
    recorder: HandlerRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.held = self.letters.held(self.identity.scope, self.handler)
        self.policy, self.recorder = self.breaker.policy, self.breaker.recorder

    def require_running(self) -> None:
        """Raises :class:`DeliveryInterrupted` after a stop: no further attempt may begin."""
        if self.until.is_set:
            raise DeliveryInterrupted(f"handler {self.handler!r}: stopped between attempts")

    async def queue_after_letters(self, event: ChangeEvent) -> bool:
        """Stores the event after unresolved letters of its key; returns True if there are any."""
        key = event.key
        if key is None or key not in self.held:
            return False
        if not await self.letters.holds(self.identity.scope, self.handler, key):
            return False
        await self._dead_letter(event, "", 0)
        return True

    async def retry(
        self,
        attempt: Callable[[], Awaitable[BaseException | None]],
        error: BaseException,
        events: Sequence[ChangeEvent],
    ) -> tuple[BaseException, int] | None:
        """Makes further attempts after ``error``, by the policy; ``attempt`` returns its error.

        Returns the last error and the number of attempts, or ``None`` if an attempt has worked.
        Raises :class:`DeliveryInterrupted` if a stop comes.
        """
        number, digest, failing = 1, events[0].token.digest, self.recorder.failing
        # Which event of several is at fault is not known yet.
        which = f" on {identified(events[0])}" if len(events) == 1 else f" on {len(events)} events"
        fields = named(events[0]) if len(events) == 1 else {"events": len(events)}
        while number < self.policy.attempts and not isinstance(error, PermanentError):
            delay = self._delay(error, number)
            self.recorder.retries += 1
            self.errors.note(f"handler {self.handler!r}{which}: {describe(error)}")
            structlog.get_logger().bind(scope=self.identity.scope, handler=self.handler).warning(
                "handler.failed",
                **fields,
                attempt=number,
                error=describe(error),
                delay_seconds=round(delay, 3),
                traceback=frames_of(error),
            )
            failing[digest] = number, describe(error)
            try:
                await self.until.sleep(delay)
                self.require_running()
                failure = await attempt()
            finally:
                failing.pop(digest, None)
            if failure is None:
                return None
            error, number = failure, number + 1
        return error, number

    async def give_up(self, event: ChangeEvent, error: BaseException, attempts: int) -> None:
        """Makes the event a dead letter, so that it counts as handled.

        Raises :class:`HandlerGaveUp` if the policy halts or the breaker trips.
        """
        why = ""
        if self.policy.halt:
            tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
            why = f"after {tried} (on_failure: halt)"
        elif reason := self.breaker.trips():
            why = f"and {reason}: fix the handler, or raise delivery.dead_letters' limits"
        if why:
            raise HandlerGaveUp(self.handler, identified(event), error, why) from error
        await self._dead_letter(event, describe(error), attempts)
        self.errors.note(
            f"handler {self.handler!r}, {identified(event)} became a dead letter: {describe(error)}"
        )
        structlog.get_logger().bind(scope=self.identity.scope, handler=self.handler).error(
            "event.dead_lettered",
            **named(event),
            attempts=attempts,
            error=describe(error),
            traceback=frames_of(error),
        )

    async def _dead_letter(self, event: ChangeEvent, error: str, attempts: int) -> None:
        came = event.fresh()  # a handler may have changed what it decoded
        stored = came if self.protection is None else self.protection.noted(came)
        letter = DeadLetter(
            self.identity.scope,
            self.handler,
            came.token.digest,
            came.key,
            stored.raw,
            error,
            attempts,
            datetime.now(UTC),
        )
        if self.lease is not None:
            self.lease.require()
        await self.letters.add(letter, self.identity.epoch)
        self.recorder.outcomes["dead_letter"] += 1

    def _delay(self, error: BaseException, number: int) -> float:
        if isinstance(error, TemporaryError) and error.delay is not None:
            return error.delay
        return self.policy.backoff.delay(number)
