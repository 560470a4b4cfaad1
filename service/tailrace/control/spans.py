"""Replays of a span of time to one handler, with a stream of its own, beside the scope."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.control.bodies import ReplayBody
from tailrace.control.outcome import ActionRefused
from tailrace.control.seeking import Seeking, moment
from tailrace.engine import Handler, PerBatch, Routed, Runtime, Watcher, WatcherState
from tailrace.engine.checkpointer import CheckpointClaim
from tailrace.engine.handle.replay import hand_over, refusal
from tailrace.engine.ports import RunIdentity
from tailrace.errors import CheckpointFenced, TailraceError, describe
from tailrace.event import ChangeEvent, RawBatch
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, LookupStream


class _Failed(TailraceError):
    """The handler has not taken a change within its attempts."""


def require_replayable(watcher: Watcher, handler: Handler) -> None:
    """Raises :class:`ActionRefused` for a handler that no change can be handed to a second time."""
    if reason := refusal(handler):
        raise ActionRefused(409, f"handler {handler.name!r}: {reason}")
    if handler.commit is not None and watcher.runs:
        told = f"handler {handler.name!r} commits these with what the scope gave it"
        raise ActionRefused(409, f"{told}: pause the scope, replay, and resume it")


async def find_span(
    watcher: Watcher, runtime: Runtime, seeking: Seeking, body: ReplayBody, by: str
) -> "SpanReplay":
    """The span that is meant, which the server still has. Raises :class:`ActionRefused`."""
    scope, of = watcher.name, watcher.plan.scope
    if body.since is None or body.handler is None:
        raise ActionRefused(400, "give from and handler, or cancel")
    routed = next((r for r in watcher.plan.routed if r.handler.name == body.handler), None)
    if routed is None:
        names = ", ".join(each.handler.name for each in watcher.plan.routed)
        told = f"scope {scope!r} has no handler {body.handler!a:.60}: choose one of {names}"
        raise ActionRefused(422, told)
    require_replayable(watcher, routed.handler)
    if of.collection is not None:
        own = {of.collection, f"{of.database}.{of.collection}"}
        if odd := sorted(set(body.collections) - own):
            told = f"scope {scope!r} does not have the collection {odd[0]!a:.60}"
            raise ActionRefused(422, f"{told}: it has {of.collection}")
    start = await seeking.position_at(body.since, "from")
    until = (await seeking.position_at(body.to, "to")).cluster_time if body.to else None
    since, until = start.cluster_time, until or seeking.server_time()
    if since is None or since >= until:
        told = f"the span ends at {moment(until)}, and does not begin before that"
        raise ActionRefused(422, f"{told}: give a from that is before to")
    await seeking.try_at(start)
    return SpanReplay(watcher, runtime, routed, since, until, frozenset(body.collections), by)


@dataclass(slots=True, eq=False)
class SpanReplay:
    """Changes of ``collections`` (none: all) from ``since`` up to ``until``, to one handler.

    They come in the stream's order, with the scope's pipeline and the handler's routes. The state
    is ``running``, ``done``, ``failed`` or ``cancelled``; ``reason`` says why it failed, and ``at``
    how far it came.
    """

    watcher: Watcher
    runtime: Runtime
    routed: Routed
    since: Timestamp
    until: Timestamp
    collections: frozenset[str]
    by: str
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
                start: StartPoint | None = StartPoint(at_operation_time=self.since)
                while start is not None:
                    start = await self._follow(start)
            self.state = "cancelled" if self.scope.cancel_called else "done"
        except TailraceError as error:
            self.state = "failed"
            self.reason = f"{describe(error)}; from {moment(self.at or self.since)} it can go on"
        finally:
            self.state = "cancelled" if self.state == "running" else self.state
            log = structlog.get_logger().bind(scope=self.watcher.name, by=self.by)
            log.info("replay.ended", **{**self.document(), "scope": self.watcher.name})

    @property
    def effect(self) -> str:
        """What is replayed, for people."""
        of = f" of {', '.join(sorted(self.collections))}" if self.collections else ""
        span = f"from {moment(self.since)} to {moment(self.until)}"
        return f"changes{of} {span} come again, to {self.routed.handler.name}"

    def document(self) -> Mapping[str, Any]:
        """For people and programs, in JSON types."""
        return {
            "handler": self.routed.handler.name,
            "from": moment(self.since),
            "to": moment(self.until),
            "collections": sorted(self.collections),
            "state": self.state,
            "reason": self.reason,
            "handled": self.handled,
            "at": moment(self.at) if self.at is not None else None,
        }

    async def _follow(self, start: StartPoint) -> StartPoint | None:
        """Reads one stream; returns where the next one starts, after an invalidate event."""
        plan, driver = self.watcher.plan, self.runtime.driver
        inner = ChangeStream(driver, plan.scope, plan.options, start)
        stream: ChangeStream | LookupStream = inner
        if plan.options.looks_up:
            stream = LookupStream(
                inner,
                driver,
                read_preference=plan.options.read_preference,
                by_uuid=plan.options.match_collection_uuid_for_update_lookup is not False,
                most_bytes=self.runtime.budget.limit // 4,
            )
        await stream.open()
        try:
            if isinstance(stream, LookupStream):
                await stream.reading(self._read)
            else:
                await self._read(stream)
        finally:
            with anyio.move_on_after(2, shield=True):
                await stream.aclose()
        token = inner.resume_token
        if not inner.invalidated or token is None or self._over(token.cluster_time):
            return None
        return StartPoint(start_after=token)

    async def _read(self, stream: ChangeStream | LookupStream) -> None:
        """Hands over one reply after another, up to the end of the span or of the stream."""
        while True:
            batch = await stream.next_batch()
            await self._hand_over(batch)
            last = batch.last
            if last is not None and last.operation == "invalidate":
                return
            if self._over(batch.token.cluster_time if batch.token is not None else None):
                return

    async def _hand_over(self, batch: RawBatch) -> None:
        calls, chosen = self.routed.handler.calls, list[ChangeEvent]()
        most = calls.events if isinstance(calls, PerBatch) and not calls.whole_transactions else 0
        for event in batch.events():
            if event.cluster_time is not None and event.cluster_time > self.until:
                break
            if not self._wants(event):
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

    def _wants(self, event: ChangeEvent) -> bool:
        if self.routed.wants is not None and not self.routed.wants(event):
            return False
        if not self.collections:
            return True
        ns = event.ns
        return ns is not None and (ns.coll in self.collections or str(ns) in self.collections)

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
        """Raises if another process may follow the scope."""
        moved = self.watcher.status.state is WatcherState.STANDBY
        if moved or self.watcher.claim is not self.claim:
            raise CheckpointFenced(
                f"scope {self.watcher.name!r} is followed by another process now"
            )
        if self.claim.lease is not None:
            self.claim.lease.require()

    def _over(self, time: Timestamp | None) -> bool:
        """Whether the stream has passed the end of the span."""
        return time is not None and time >= self.until
