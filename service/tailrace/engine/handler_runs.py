"""The handlers that a run feeds: how they begin, leave it, and join it.

Their lanes run in tasks of the scope: one that has left may still end a call after the run.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import structlog

from tailrace.engine.checkpointer import Checkpointer
from tailrace.engine.course import Course
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import must_finish
from tailrace.engine.handle.lane_kinds import lane_of
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.plan.router import Routed
from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.read.read_order import ReadOrder
from tailrace.engine.run_start import HandlerStart
from tailrace.engine.shared_stream import SharedStream
from tailrace.errors import LeaseLost
from tailrace.model import Progress, ResumeToken, StartPoint
from tailrace.model.subscription import Subscription
from tailrace.stream import Interrupt

PATIENCE_SECONDS = 5.0
"""How long handlers wait at the end of a run for a slower one, before it leaves them."""
_OUTAGE_SECONDS = 1.0
"""The same for one whose destination is down."""


@dataclass(slots=True, eq=False)
class HandlerRuns:
    """Those of one run. ``fail`` ends the run with an error."""

    course: Course
    shared_stream: SharedStream
    interrupt: Interrupt
    fail: Callable[[Exception], None]
    fed: list[HandlerRun] = field(default_factory=list)
    all: list[HandlerRun] = field(default_factory=list)
    """Also those that have left, and still end a call."""
    joined: HandlerRun | None = None
    """The handler's part in the shared stream, if it was attached there."""
    identity: RunIdentity = field(init=False)
    watermarks: Watermarks = field(init=False)
    checkpointer: Checkpointer = field(init=False)
    order: ReadOrder = field(default_factory=ReadOrder)
    _waits: dict[Delivery, Interrupt] = field(default_factory=dict)
    """What ends the waits of each delivery."""

    def delivery(self, routed: Routed) -> Delivery:
        """Makes the deliveries to a handler in this run."""
        scope, errors, waits = self.course.scope, self.course.status.errors, Interrupt()
        made = scope.delivery(routed.handler, self.identity, errors, waits)
        self._waits[made] = waits
        if self.course.alone:
            made.try_one_by_one()
        return made

    def add(self, begun: HandlerStart, start: StartPoint) -> None:
        """Adds a handler as it begins in a stream that begins at ``start``."""
        at = begun.position
        claim = self.course.scope.claim
        new = Subscription(at.position, observed_generation=claim.observed_by(begun.name))
        noted = claim.of(begun.name) or new
        exact = at.is_exact(start)
        before = None if exact else HandledBefore(at.has, waits=at.own is not None)
        watermark = Watermark(
            at.position,
            self.watermarks.moved,
            handles=begun.routed is not None,
            floor=None if exact else at.has,
            near=self.watermarks.near,
        )
        current = noted.fingerprint in ("", self.identity.fingerprint)
        unsaved = begun.name in self.course.scope.claim.unsaved
        stored = noted.position if current and not (at.save_first or unsaved) else None
        run = HandlerRun(begun.name, watermark, noted, stored, begun.delivery)
        run.fingerprint, run.replay = at.fingerprint, self.course.replay
        if begun.routed is not None and begun.delivery is not None:
            most, wants = self.course.scope.plan.lanes, begun.routed.wants
            run.lane = lane_of(begun.delivery, wants, watermark, before, most)
        run.begin()
        self._add(run)

    def _add(self, handler: HandlerRun) -> None:
        self.fed.append(handler)
        self.all.append(handler)
        self.watermarks.each[handler.name] = handler.watermark

    def halt(self) -> None:
        """Ends the waits of the handlers, and begins no further call; not of those that left."""
        left = {each.delivery for each in self.all if each.left}
        for delivery, waits in self._waits.items():
            if delivery not in left:
                waits.set()
        for each in self.fed:
            if each.lane is not None and not each.joining:
                each.lane.halt()

    @contextmanager
    def taking_others(self) -> Iterator[None]:
        """Others may join while the shared stream is read."""
        if self.course.on_detach is None:
            yield
            return
        self.shared_stream.open(self._read_to, self._attach, self._withdraw)
        try:
            yield
        finally:
            self.shared_stream.close()

    async def drain(self) -> None:
        """Waits until each handler has finished what it will, or has left: one that is slower than
        the others does not hold their next run."""
        for handler in list(self.fed):
            if handler.joining:
                self._remove(handler)
            elif handler.lane is not None:
                handler.lane.close()
        while left := [handler for handler in self.fed if not handler.over.is_set()]:
            slow = (
                self._can_leave and len(left) < len(self.fed) and not self.course.scope.stop.is_set
            )
            with anyio.move_on_after(self._patience(left[0]) if slow else None) as patience:
                await left[0].over.wait()
            if patience.cancelled_caught:
                self._detach(left[0], "it is slower than the others at the end of a run")

    def _patience(self, handler: HandlerRun) -> float:
        is_down = self.course.scope.breakers[handler.name].recorder.down_since is not None
        return min(PATIENCE_SECONDS, _OUTAGE_SECONDS) if is_down else PATIENCE_SECONDS

    def start(self, handler: HandlerRun) -> None:
        """Runs the handler's lane, in a task of the scope."""
        if handler.lane is None:
            handler.over.set()
        else:
            tasks, handler.started = self.course.scope.tasks, True
            tasks.start_soon(self._run_lane, handler, name=f"lanes of {handler.name}")

    async def _run_lane(self, handler: HandlerRun) -> None:
        """Runs a handler's lane: it may end after the run, if the handler has left it."""
        assert handler.lane is not None  # noqa: S101 - for the type checker
        failure: Exception | None = None
        try:
            await handler.begun.wait()
            if handler.joining:
                return  # it left before it had joined
            assert handler.delivery is not None  # noqa: S101 - for the type checker
            with self.course.scope.stop.calling(self._waits[handler.delivery].set):
                await must_finish(handler.lane.run, "the task of a handler's lane")
        except Exception as error:  # noqa: BLE001 - whatever the error is, running calls finish
            failure = error
        except anyio.get_cancelled_exc_class():
            if handler.left:  # a run saves and frees only what it feeds
                await self._end(handler)
            raise
        finally:
            handler.over.set()
        if failure is not None and not handler.left:
            if not self._can_leave or isinstance(failure, LeaseLost) or self.interrupt.is_set:
                self.fail(failure)
                return
            self._leave(handler)
        if handler.left:
            await self._end(handler)
            handler.failure = failure
            handler.ended.set()

    async def _end(self, handler: HandlerRun) -> None:
        """Saves what one that has left has handled, and frees the rest."""
        try:
            await self.checkpointer.save_last([handler])
        finally:
            self._forget(handler)

    @property
    def _can_leave(self) -> bool:
        """Whether a handler can leave, and others stay."""
        return self.course.on_detach is not None and len(self.fed) > 1

    def let_go(self, names: Collection[str]) -> bool:
        """Ends some handlers' calls and waits, so that they leave; returns whether they do."""
        some = [each for each in self.fed if each.name in names and each.can_leave]
        if len(some) < len(names) or len(some) >= len(self.fed) or not self._can_leave:
            return False
        for each in some:
            if each.delivery is not None:
                self._waits[each.delivery].set()
            self._leave(each)
        return True

    def make_room(self) -> bool:
        """Lets the handler leave that holds most of the memory, if the others stand further;
        returns whether one has left."""
        if not self._can_leave:
            return False
        last = max(self.fed, key=lambda handler: handler.watermark.size)
        least = min(handler.watermark.size for handler in self.fed)
        if last.watermark.size < 2 * max(least, 1):
            return False
        self._detach(last, "the others would have to wait for it")
        return True

    def _detach(self, handler: HandlerRun, why: str) -> None:
        self.shared_stream.left(handler.name)
        if handler.joining:
            self._remove(handler)
            return
        at, log = str(handler.watermark.position.start_point), structlog.get_logger()
        log = log.bind(scope=self.identity.scope, handler=handler.name)
        log.warning("subscription.detached", reason=why, at=at)
        self._leave(handler)

    def _leave(self, handler: HandlerRun) -> None:
        self._remove(handler)
        self.course.detach(handler.name, None, handler)

    def _remove(self, handler: HandlerRun) -> None:
        """Feeds a handler no more: what it has not begun leaves memory."""
        self.fed.remove(handler)
        del self.watermarks.each[handler.name]
        handler.leave()
        if handler.joining:
            self._forget(handler)

    def _forget(self, handler: HandlerRun) -> None:
        if handler in self.all:  # one that has left may be cancelled as well
            self.all.remove(handler)
            handler.watermark.abandon()

    def drop_unbegun(self) -> None:
        """Feeds those no more that have left the course before this run began to call them."""
        for each in [one for one in self.fed if one.name not in self.course.names]:
            self._remove(each)
            self._forget(each)

    def _read_to(self) -> ResumeToken | None:
        """Where a handler may join; ``None`` while none can."""
        # Rows would come to it, too: the end of a snapshot that it lacks, or rows that it has.
        reads_rows = self._has_snapshot or self.order.gate.locked()
        return None if self.interrupt.is_set or reads_rows else self.watermarks.read_token

    @property
    def _has_snapshot(self) -> bool:
        """Whether the course has a snapshot that is not over, even if it is paused."""
        rows = self.course.rows
        return rows.active or ((now := rows.observed()) is not None and not now.progress.over)

    def _attach(self, routed: Routed, former: HandlerRun, token: ResumeToken) -> HandlerRun:
        """Feeds a handler with everything after a token; it begins when its own run has ended."""
        assert former.delivery is not None  # noqa: S101 - for the type checker
        delivery = self.delivery(routed)
        before = former.lane.before if former.lane is not None else None
        single, until = before.expected if before is not None else (frozenset[str](), None)
        has, marks = Progress(token, token.cluster_time, single, until), self.watermarks
        exact = token == marks.read_token and not single
        at, floor = former.watermark.position, None if exact else has
        watermark = Watermark(at, marks.moved, floor=floor, near=marks.near)
        handler = HandlerRun(routed.name, watermark, former.subscription, None, delivery)
        before = None if exact else HandledBefore(has, waits=False)
        handler.lane = lane_of(
            delivery, routed.wants, watermark, before, self.course.scope.plan.lanes
        )
        self._add(handler)
        self.start(handler)
        return handler

    def _withdraw(self, handler: HandlerRun) -> None:
        """A handler that was to join does not come."""
        if handler in self.fed and handler.joining:
            self._remove(handler)

    def has_come(self, exhausted: bool) -> bool:
        """Whether the handler has come as far as the shared stream, and is attached to it now, or
        to the end of its replay. ``exhausted``: the server has no further change at this time."""
        course = self.course
        if course.replay is not None:
            return course.replay.is_over(self.watermarks.read_time, exhausted=exhausted)
        if not course.alone or self._has_snapshot:
            return False
        token, routed, handler = self.watermarks.read_token, course.routed[0], self.fed[0]
        snapshot = handler.watermark.position.snapshot
        if not handler.watermark.is_past or not (snapshot is None or snapshot.over):
            return False
        if not self.shared_stream.can_attach(routed.name, token):
            return False
        assert token is not None and self.shared_stream.attach is not None  # noqa: S101, PT018
        self.joined = self.shared_stream.attach(routed, handler, token)
        return True
