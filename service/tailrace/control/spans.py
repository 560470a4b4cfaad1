"""Replays of a span of time to one handler, with a stream of its own, beside the scope."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.control.outcome import ActionRefused, elsewhere
from tailrace.control.server_positions import moment
from tailrace.control.span import Span
from tailrace.engine import Handler, PerBatch, Routed, Runtime, Watcher, WatcherState
from tailrace.engine.checkpoint_claim import CheckpointClaim
from tailrace.engine.handle.replay import hand_over, refusal
from tailrace.engine.ports import RunIdentity
from tailrace.errors import CheckpointFenced, TailraceError, describe
from tailrace.event import ChangeEvent


class _Failed(TailraceError):
    """The handler has not taken a change within its attempts."""


def require_replayable(watcher: Watcher, handler: Handler) -> None:
    """Raises :class:`ActionRefused` for a handler that no change can be handed to a second time."""
    if reason := refusal(handler):
        raise ActionRefused(409, f"handler {handler.name!r}: {reason}")
    if handler.commit is not None and watcher.runs:
        message = f"handler {handler.name!r} commits these with what the scope gave it"
        raise ActionRefused(409, f"{message}: pause the scope, replay, and resume it")


def owner_of(watcher: Watcher) -> str | None:
    """The process that follows the scope; empty if none does, ``None`` if that is not known."""
    lease = watcher.status.lease()
    return lease.owner if lease is not None else None


def require_here(watcher: Watcher) -> None:
    """Refuses what only the process that follows the scope can do."""
    if watcher.status.state is WatcherState.STANDBY:
        raise elsewhere(watcher.name, owner_of(watcher), watcher.status.reason)


def require_followed(watcher: Watcher) -> None:
    """Refuses what needs the epoch in which this process follows the scope."""
    if not watcher.claim.epoch:
        message = f"scope {watcher.name!r} is starting: ask again when it is followed"
        raise ActionRefused(409, message)


def find_handler(watcher: Watcher, name: str) -> Routed:
    """The handler of the scope with this name, if changes may come to it again.

    Raises :class:`ActionRefused`.
    """
    found = next((each for each in watcher.plan.routed if each.handler.name == name), None)
    if found is None:
        names = ", ".join(each.handler.name for each in watcher.plan.routed)
        message = f"scope {watcher.name!r} has no handler {name!a:.60}: choose one of {names}"
        raise ActionRefused(422, message)
    require_replayable(watcher, found.handler)
    return found


@dataclass(slots=True, eq=False)
class SpanReplay:
    """Hands the changes of a span to one handler.

    They come in the stream's order, with the scope's pipeline and the handler's routes. The state
    is ``running``, ``done``, ``failed`` or ``cancelled``; ``reason`` says why it failed, and ``at``
    how far it came.
    """

    watcher: Watcher
    runtime: Runtime
    span: Span
    routed: Routed
    by: str
    current: Callable[[], bool]
    """Whether the scope is still followed by this watcher, with these handlers."""
    state: str = "running"
    reason: str = ""
    handled: int = 0
    at: Timestamp | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    claim: CheckpointClaim = field(init=False)
    """The claim of this process on the scope when the replay began."""

    def __post_init__(self) -> None:
        self.claim = self.watcher.claim

    async def run(self) -> None:
        """Ends when all is handed over, when a change fails, or when it is cancelled."""
        try:
            with self.scope:
                runtime = self.runtime
                await self.span.read(runtime.driver, runtime.budget.limit // 4, self._hand_over)
            self.state = "cancelled" if self.scope.cancel_called else "done"
        except TailraceError as error:
            self.state = "failed"
            since = moment(self.at or self.span.since)
            self.reason = f"{describe(error)}; from {since} it can go on"
        finally:
            self.state = "cancelled" if self.state == "running" else self.state
            log = structlog.get_logger().bind(scope=self.watcher.name, by=self.by)
            log.info("replay.ended", **{**self.document(), "scope": self.watcher.name})

    @property
    def effect(self) -> str:
        """What is replayed, for people."""
        return f"{self.span} come again, to {self.routed.handler.name}"

    def document(self) -> Mapping[str, Any]:
        """For people and programs, in JSON types."""
        return {
            "handler": self.routed.handler.name,
            "from": moment(self.span.since),
            "to": moment(self.span.until),
            "collections": list(self.span.collections),
            "keys": [each.text for each in self.span.keys],
            "state": self.state,
            "reason": self.reason,
            "handled": self.handled,
            "at": moment(self.at) if self.at is not None else None,
        }

    async def _hand_over(self, events: Sequence[ChangeEvent]) -> None:
        calls, chosen = self.routed.handler.calls, list[ChangeEvent]()
        most = calls.events if isinstance(calls, PerBatch) and not calls.whole_transactions else 0
        for event in events:
            if self.routed.wants is not None and not self.routed.wants(event):
                continue
            alone = not isinstance(calls, PerBatch) or event.is_ddl
            if chosen and (alone or (most and len(chosen) >= most)):
                await self._deliver(chosen)
                chosen = []
            chosen.append(event)
            if alone:
                await self._deliver(chosen)
                chosen = []
        if chosen:
            await self._deliver(chosen)

    async def _deliver(self, events: Sequence[ChangeEvent]) -> None:
        handler, failures = self.routed.handler, 0
        while True:
            self._require()
            identity = RunIdentity(self.watcher.name, "", "", self.claim.epoch)
            async with self.watcher.turn(handler.name):
                error = await hand_over(handler, [each.fresh() for each in events], identity)
            if not error:
                break
            failures += 1
            if failures >= handler.failure.attempts:
                raise _Failed(f"handler {handler.name!r} failed: {error}")
            await anyio.sleep(handler.failure.backoff.delay(failures))
        self.handled += len(events)
        self.at = events[-1].cluster_time or self.at

    def _require(self) -> None:
        """Raises if another process or watcher may follow the scope."""
        if not self.current():
            message = f"scope {self.watcher.name!r} was restarted, or changed by a reload"
            raise CheckpointFenced(message)
        moved = self.watcher.status.state is WatcherState.STANDBY
        if moved or self.watcher.claim is not self.claim:
            raise CheckpointFenced(
                f"scope {self.watcher.name!r} is followed by another process now"
            )
        if self.claim.lease is not None:
            self.claim.lease.require()
