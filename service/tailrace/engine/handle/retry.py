"""What happens when an attempt at a handler fails: further attempts, then a dead letter or a halt.

Letters are sequenced. While one of a key lies unresolved, later events of that key (for that
handler) join the queue behind it without being tried, so the order is kept until an operator
replays or discards them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import structlog

from tailrace.engine.naming import named
from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import (
    DeliveryInterrupted,
    HandlerGaveUp,
    PermanentError,
    TemporaryError,
    describe,
)
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.failure_policy import FailurePolicy
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.observe.tracebacks import frames_of
from tailrace.stream import Interrupt

Attempt = Callable[[], Awaitable[BaseException | None]]
"""One more call of the handler: its error, or ``None`` if it returned."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Nothing more is tried: the last error, and how many attempts there were."""

    error: BaseException
    attempts: int


class Breaker:
    """Halts a scope whose handler gives up too often: then it is not the events' fault."""

    def __init__(self, policy: FailurePolicy, recorder: HandlerRecorder) -> None:
        self.policy = policy
        self.recorder = recorder
        self._row = 0
        self._handled = -1
        self._recent: deque[int] = deque()

    def trips(self) -> str:
        """Notes one more event that was given up; says why no more may be, or nothing."""
        policy, outcomes = self.policy, self.recorder.outcomes
        self._row = self._row + 1 if outcomes["ok"] == self._handled else 1
        self._handled = outcomes["ok"]
        if self._row > policy.max_consecutive:
            return f"{policy.max_consecutive} events in a row were set aside"
        seen = outcomes["ok"] + outcomes["dead_letter"]
        recent = self._recent
        recent.append(seen)
        while recent[0] <= seen - policy.ratio_window:
            recent.popleft()
        if seen >= policy.ratio_window and len(recent) > policy.max_ratio * policy.ratio_window:
            return f"{len(recent)} of the last {policy.ratio_window} events were set aside"
        return ""


class Retry:
    """The failure policy of one handler on one scope, with its letters and its breaker.

    ``errors`` are those of the scope. Waiting for a next attempt ends with ``until``.
    """

    def __init__(
        self,
        scope: str,
        handler: str,
        letters: DeadLetterStore,
        breaker: Breaker,
        errors: RecentErrors,
        until: Interrupt,
    ) -> None:
        self.policy = breaker.policy
        self.scope = scope
        self._handler = handler
        self._letters = letters
        self.held: Callable[[], Collection[bytes | None]] = partial(letters.held, scope, handler)
        """Asks for the keys that have letters, as far as is known without looking."""
        self._recorder = breaker.recorder
        self._errors = errors
        self._breaker = breaker
        self._until = until
        self._log = structlog.get_logger().bind(scope=scope, handler=handler)

    async def set_behind(self, event: ChangeEvent) -> bool:
        """Sets the event aside if letters of its key are still unresolved."""
        key = event.key
        if key is None or not await self._letters.holds(self.scope, self._handler, key):
            return False
        await self._set_aside(event, "", 0)
        return True

    async def insist(
        self, attempt: Attempt, error: BaseException, event: ChangeEvent
    ) -> Spent | None:
        """Tries again after ``error`` as the policy says; ``None`` once it has worked.

        Raises :class:`DeliveryInterrupted` where a stop ends the waiting.
        """
        policy = self.policy
        for number in range(1, policy.attempts + 1):
            if number == policy.attempts or isinstance(error, PermanentError):
                return Spent(error, number)
            delay = self._delay(error, number)
            self._recorder.retries += 1
            self._errors.note(f"handler {self._handler!r}: {describe(error)}")
            self._log.warning(
                "handler.failed",
                **named(event),
                attempt=number,
                error=describe(error),
                delay_seconds=round(delay, 3),
                traceback=frames_of(error),
            )
            await self._until.sleep(delay)
            if self._until.is_set:
                raise DeliveryInterrupted(f"handler {self._handler!r}: stopped between attempts")
            failure = await attempt()
            if failure is None:
                return None
            error = failure
        raise AssertionError("a policy has at least one attempt")

    async def give_up(self, event: ChangeEvent, spent: Spent) -> None:
        """Sets the event aside for good, so that it counts as handled.

        Raises :class:`HandlerGaveUp` where the policy halts, or the breaker trips, and
        :class:`tailrace.errors.DeadLetterError` where the letter cannot be stored.
        """
        digest, error = event.token.digest, spent.error
        if self.policy.halt:
            raise HandlerGaveUp(
                self._handler, digest, error, f"after {spent.attempts} attempts (on_failure: halt)"
            ) from error
        if reason := self._breaker.trips():
            raise HandlerGaveUp(
                self._handler,
                digest,
                error,
                f"and {reason}: mend the handler, or raise delivery.dead_letters' limits",
            ) from error
        await self._set_aside(event, describe(error), spent.attempts)
        self._errors.note(f"handler {self._handler!r}, event set aside: {describe(error)}")
        self._log.error(
            "event.dead_lettered",
            **named(event),
            attempts=spent.attempts,
            error=describe(error),
            traceback=frames_of(error),
        )

    async def _set_aside(self, event: ChangeEvent, error: str, attempts: int) -> None:
        came = event.fresh()  # a handler may have changed what it decoded
        letter = DeadLetter(
            self.scope,
            self._handler,
            came.token.digest,
            came.key,
            came.raw,
            error,
            attempts,
            datetime.now(UTC),
        )
        await self._letters.add(letter)
        self._recorder.outcomes["dead_letter"] += 1

    def _delay(self, error: BaseException, number: int) -> float:
        if isinstance(error, TemporaryError) and error.delay is not None:
            return error.delay
        return self.policy.backoff.delay(number)
