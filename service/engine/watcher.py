"""One scope, followed for ever: lives that begin at the checkpoint, and what happens in between.

Before it stands the stream, which resumes by itself as the specification says; above it the
supervisor, which starts it and waits. A life ends by a stop, by an invalidate event, or by an
error; then it drains, saves, and a new one begins from what was saved, or a person is needed.
"""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from bson.timestamp import Timestamp

from service.engine.backoff import Backoff
from service.engine.checkpointer import Owner
from service.engine.delivery import Delivery
from service.engine.following import Following, Surroundings
from service.engine.in_flight import Mark
from service.engine.life import Ending, Life
from service.engine.ports import Handler
from service.engine.recourse import Recourse
from service.engine.recovery import MOST_SKIPS, Recovery
from service.engine.state import WatcherState, WatcherStatus
from service.engine.verdict import HISTORY_LOST, Verdict, judge
from service.errors import CheckpointFenced, ScopeHalted, StreamBeganInMidEvent, describe
from service.model import Checkpoint, StartPoint
from service.model.cluster import ClusterIdentity
from service.model.gap import Gap
from service.model.start import NOW
from service.stream import Interrupt, fingerprint


class Watcher:
    """Follows one scope until it is stopped or halted; :attr:`status` says how it goes."""

    def __init__(self, following: Following, surroundings: Surroundings) -> None:
        self.following = following
        self.status = WatcherStatus(following.scope)
        self._around = surroundings
        self._backoff = Backoff(following.backoff)
        self._fingerprint = fingerprint(following.scope, following.options)
        self._epoch = 0
        self._saw_nothing_else = False
        self._recovery = Recovery()
        self._deliveries = [self._delivery(routed.handler) for routed in following.routed]
        self._start = NOW
        self._refusal = ""
        self._opening = True
        self._read_on = False
        self._log = structlog.get_logger().bind(scope=following.scope.name)
        surroundings.metrics.watch(following.scope.name, self.status.gauges)

    @property
    def name(self) -> str:
        """The scope's name."""
        return self.following.scope.name

    async def run(self, stop: Interrupt) -> None:
        """Lives, one after another. Returns only in state ``stopped`` or ``halted``."""
        fruitless_invalidates = False
        while not stop.is_set:
            before = self._order
            try:
                ending = await self._live(stop)
            except Exception as error:  # noqa: BLE001 - a watcher never ends but by its states
                verdict = judge(error, self.name, opening=self._opening)
                self.status.failed(verdict.message)
                if self._goes_around(verdict, error):
                    continue
                if verdict.halt:
                    self._halt(verdict.message)
                    return
                await self._back_off(verdict.reason, verdict.message, before, error, stop)
                continue
            if ending is Ending.INVALIDATED:
                if self.following.stop_on_invalidate:
                    self._log.info("scope.ended", reason="invalidate")
                    break
                # Two lives in a row that saw nothing but an invalidate would spin.
                if not self._saw_nothing_else:
                    self._backoff.reset()
                elif fruitless_invalidates:
                    self._enter(WatcherState.BACKING_OFF, "invalidated again at once")
                    await stop.sleep(self._backoff.next_delay())
                fruitless_invalidates = self._saw_nothing_else
        self._enter(WatcherState.STOPPED)

    def _delivery(self, handler: Handler) -> Delivery:
        recorder = self._around.metrics.recorder(self.name, handler.name)
        recourse = None
        if self._around.letters is not None:
            recourse = Recourse(
                self.name, handler.name, handler.failure, self._around.letters, recorder
            )
        return Delivery(handler, recorder, recourse)

    async def _live(self, stop: Interrupt) -> Ending:
        self._enter(WatcherState.STARTING)
        self._opening = True
        self._read_on = False
        checkpoint = await self._load()
        if self._around.letters is not None:
            await self._around.letters.refresh()
        wanted = self._start_point(checkpoint)
        start = self._start = self._recovery.start(wanted, checkpoint) or wanted
        gap = self._gap(checkpoint) if start == NOW != wanted else None
        self._log.info("stream.starting", at=str(start), follows=str(self.following.scope))
        ours = checkpoint is not None and checkpoint.epoch == self._epoch
        life = Life(
            self.following,
            self._around,
            self.status,
            self._deliveries,
            Owner(self.name, str(self._around.cluster), self._fingerprint, self._epoch),
            Mark.behind(None if gap else checkpoint, start),
            checkpoint.sequence if checkpoint and ours else 0,
            self._enter,
        )
        try:
            with stop.child() as interrupt:
                return await life.run(start, interrupt, gap)
        finally:
            self._opening = life.replies <= 1
            self._read_on = life.replies > 1 or life.events > 0
            self._saw_nothing_else = life.events <= 1
            if life.events:
                self._recovery.progressed()

    def _gap(self, checkpoint: Checkpoint | None) -> Gap:
        """What beginning now skips. Raises :class:`ScopeHalted` where that goes in rounds."""
        if not self._recovery.skipped():
            raise ScopeHalted(
                f"scope {self.name!r}: its history was lost {MOST_SKIPS} times without one change "
                f"in between: {self._refusal}. Look at the size of the server's oplog, then restart"
            )
        mark = Mark.behind(checkpoint, self.following.start)
        return Gap(
            scope=self.name,
            token=mark.high_water or mark.event_token,
            since=mark.cluster_time,
            until=None,
            reason=self._refusal,
            policy="skip",
            recorded_at=datetime.now(UTC),
        )

    def _goes_around(self, verdict: Verdict, error: Exception) -> bool:
        """Whether the next life can begin elsewhere, at once: each start point is tried once."""
        if isinstance(error, StreamBeganInMidEvent):
            time = error.cluster_time
            return isinstance(time, Timestamp) and self._recovery.rewind(time)
        if verdict.reason != HISTORY_LOST:
            return False
        self._around.metrics.history_lost.labels(self.name).inc()
        if not self.following.skip_lost_history:
            return False
        self._recovery.refused(self._start)
        self._refusal = describe(error)
        self._log.warning("position.refused", start=str(self._start), error=verdict.message)
        return self._recovery.start(self._start, self.status.checkpoint) is not None

    async def _load(self) -> Checkpoint | None:
        """The checkpoint, claimed: the first load of this process begins a new epoch."""
        checkpoint = await self._around.store.load(self.name)
        self.status.checkpoint = checkpoint
        stored = checkpoint.epoch if checkpoint else 0
        if not self._epoch:
            self._epoch = stored + 1
        elif stored > self._epoch:
            raise CheckpointFenced(
                f"scope {self.name!r}: the store holds epoch {stored}, newer than this process's "
                f"{self._epoch}: another process, or 'tailrace checkpoints set', has taken the "
                "scope over. Restart this process to follow from there"
            )
        return checkpoint

    def _start_point(self, checkpoint: Checkpoint | None) -> StartPoint:
        """From the checkpoint if it is ours, else from its time; without one, where configured."""
        if checkpoint is None:
            return self.following.start
        self._check_cluster(checkpoint)
        if checkpoint.fingerprint in ("", self._fingerprint):
            return checkpoint.start_point
        if checkpoint.cluster_time is None:
            raise ScopeHalted(
                f"scope {self.name!r}: its pipeline or options changed since the checkpoint, whose "
                "token is not valid with the new ones, and its time is not known. Restore them, or "
                f"choose a position: 'tailrace checkpoints set {self.name} --at TIME'"
            )
        self._log.warning(
            "checkpoint.pipeline_changed",
            cluster_time=checkpoint.cluster_time.as_datetime().isoformat(),
            consequence="starts at the checkpoint's time: duplicates possible, nothing lost",
        )
        return StartPoint(at_operation_time=checkpoint.cluster_time)

    def _check_cluster(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.cluster:
            return
        stored, here = ClusterIdentity.parse(checkpoint.cluster), self._around.cluster
        if not stored.may_be(here):
            raise ScopeHalted(
                f"scope {self.name!r}: its checkpoint belongs to the cluster {stored}, and "
                f"mongodb.uri leads to {here}. A token of another cluster can skip changes "
                "silently. Correct the URI, use another checkpoint store, or forget the position: "
                f"'tailrace checkpoints reset {self.name}'"
            )

    async def _back_off(
        self,
        reason: str,
        message: str,
        before: tuple[int, int] | None,
        error: Exception,
        stop: Interrupt,
    ) -> None:
        # The position behind an aggregate that found nothing is new each time, and no progress.
        if self._order != before and self._read_on:
            self._backoff.reset()
        delay = self._backoff.next_delay()
        self.status.restarts += 1
        self._around.metrics.restarts.labels(self.name, reason).inc()
        self._log.warning(
            "watcher.restarting",
            reason=reason,
            error=message,
            delay_seconds=round(delay, 3),
            exc_info=error if reason == "internal" else None,
        )
        self._enter(WatcherState.BACKING_OFF, message)
        await stop.sleep(delay)

    def _halt(self, message: str) -> None:
        self._enter(WatcherState.HALTED, message)
        self._log.error("scope.halted", error=message)

    def _enter(self, state: WatcherState, reason: str = "") -> None:
        if self.status.enter(state, reason):
            self._log.debug("watcher.entered", state=state.value)

    @property
    def _order(self) -> tuple[int, int] | None:
        return self.status.checkpoint.order if self.status.checkpoint else None
