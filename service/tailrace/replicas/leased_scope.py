"""One scope of this process: its lease, while the process holds it, and the run of its watcher.

A term begins when the lease is granted. It ends when the scope is handed over or fenced, when the
lease is lost, or when the process stops. :mod:`tailrace.replicas.leases` acquires and renews.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field

import anyio
import structlog

from tailrace.engine import GRACE_IS_OVER, HeldLease, Watcher, WatcherState, log_not_drained
from tailrace.errors import LeaseError, describe
from tailrace.model import Checkpoint
from tailrace.replicas.ports import LeaseStore
from tailrace.stream import Interrupt

RELEASE_SECONDS = 2.0
"""How long the release of a lease may take. After that, the lease is left to expire."""

_TICK_SECONDS = 0.001
"""The shortest wait for the end of a lease: that may be by another clock than the event loop's."""

Entered = Callable[[str], AbstractAsyncContextManager[object]]


@dataclass(eq=False)
class LeasedScope:
    """``owner`` is this process's id, and ``grace_seconds`` how long handlers may take to finish
    started calls when the scope is handed over. ``restart`` starts an ended scope
    again (:meth:`tailrace.engine.Supervisor.restart`); ``on_wait`` is called when it begins
    to wait for the lease. ``entered``: keeps the objects of its handlers open in a block.
    """

    name: str
    store: LeaseStore
    owner: str
    grace_seconds: float
    restart: Callable[[str, str], object]
    on_wait: Callable[[], None]
    entered: Entered = nullcontext
    lease: HeldLease | None = None
    _watcher: Watcher | None = None
    _granted: anyio.Event | None = None
    """Set with the lease; ``None`` while the watcher does not wait for it."""
    _ends: Interrupt | None = None
    """Drains the watcher; ``None`` while it does not run."""
    _running: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _lost: bool = False
    """Whether the term ended by the loss of the lease, while nothing had told it to end."""
    _unreadable: str = ""
    """Why the lease in the store cannot be read; empty if it can."""
    _must_halt: bool = False
    _objects: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Leaves the objects of its handlers, if they are open."""

    async def follow(self, watcher: Watcher, stop: Interrupt) -> None:
        """Runs the watcher for one term after another, until the stop or until its scope has ended.

        A scope that halted, or ended as configured, keeps its lease: another process would only
        end it again.
        """
        self._watcher = watcher
        while not stop.is_set:
            await self.release()  # the lease that an ended watcher of this scope has kept
            lease = await self._until_granted(stop)
            if self._halted(watcher):
                return
            if lease is None:
                continue
            keeps = self._lost = False
            try:
                with stop.child() as self._ends, anyio.CancelScope() as self._running:
                    with self._ends.interrupts():
                        await self._objects.enter_async_context(self.entered(self.name))
                    await watcher.run(self._ends, lease)
                    keeps = not (self._ends.is_set or watcher.fenced)
                if self._running.cancelled_caught and not self._lost:
                    self._cut_off(watcher)
            finally:
                self._ends = None
                if not keeps:
                    watcher.plan.rows.leave()
                    await self.release()
                if self._lost:
                    watcher.status.stand_by()  # a stop that comes meanwhile has nothing to save
            if self._halted(watcher) or keeps:
                return
        if watcher.status.state is WatcherState.STANDBY:
            watcher.status.enter(WatcherState.STOPPED)

    async def _until_granted(self, stop: Interrupt) -> HeldLease | None:
        """Waits for the lease. Returns ``None`` after a stop, or if it was lost again at once."""
        self._granted = granted = anyio.Event()
        self.on_wait()
        try:
            with stop.interrupts():
                await granted.wait()
        finally:
            self._granted = None
        return self.lease

    @property
    def followed(self) -> Watcher | None:
        """The watcher, while this process has the lease."""
        return self._watcher if self.lease is not None else None

    @property
    def waiting(self) -> bool:
        """Whether the watcher waits for the lease."""
        return self._granted is not None

    @property
    def renewable(self) -> bool:
        """False after the watcher was cancelled: the lease then expires even if handlers hang."""
        return self._ends is None or not self._running.cancel_called

    @property
    def outlived(self) -> bool:
        """Whether the watcher still runs although the lease is gone: a handler does not end."""
        return self._ends is not None and (self.lease is None or self.lease.over)

    # --- the begin and the end of a term -------------------------------------------------------

    def grant(self, lease: HeldLease) -> None:
        """Begins a term with an acquired lease."""
        self.lease = lease
        if self._granted is not None:
            self._granted.set()

    async def release(self) -> None:
        """Ends the term, if there is one. If the release fails, the lease expires by itself."""
        await self._objects.aclose()
        if self.lease is None:
            return
        epoch = self._give_up()
        log = structlog.get_logger().bind(scope=self.name, epoch=epoch)
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
            try:
                await self.store.release(self.name, self.owner, epoch)
                log.info("lease.released")
            except LeaseError as error:
                log.info("lease.not_released", error=describe(error), consequence="it expires")

    def end_if_over(self) -> None:
        """Ends the term if its lease is over."""
        if self.lease is not None and self.lease.over:
            self.lose("it was not renewed in time")

    def lose(self, reason: str) -> None:
        """Another process may have the scope: cancels the watcher; nothing is saved any more."""
        epoch = self._give_up()
        structlog.get_logger().info("lease.lost", scope=self.name, epoch=epoch, reason=reason)
        if self._ends is None:
            self.restart(self.name, "the loss of its lease")
            return
        self._lost = self._lost or not self._ends.is_set
        self._ends.set()
        self._running.cancel()
        if self._watcher is not None:
            self._watcher.status.stand_by()

    def hand_over(self, to: str) -> None:
        """Lets the watcher drain, and cancels it after the grace period. Its end releases the
        lease."""
        if self._ends is None:
            self.restart(self.name, "a hand-over")
        elif not self._ends.is_set:
            epoch = self.lease.epoch if self.lease is not None else None
            structlog.get_logger().info("lease.handed_over", scope=self.name, epoch=epoch, to=to)
            self._drain()

    def _cut_off(self, watcher: Watcher) -> None:
        """The watcher was cancelled while it drained."""
        reason = GRACE_IS_OVER if self.lease is not None else "its lease was lost while it drained"
        log_not_drained(self.name, reason)
        watcher.status.unsaved = watcher.status.unsaved or reason  # a stop ends with it

    def _give_up(self) -> int:
        """Ends the lease for good; returns its epoch."""
        lease, self.lease = self.lease, None
        assert lease is not None  # noqa: S101 - for the type checker
        lease.give_up()
        return lease.epoch

    def _drain(self) -> None:
        if self._ends is not None:
            self._ends.set()
            self._running.deadline = anyio.current_time() + self.grace_seconds

    # --- what the process reads of other processes, and of a damaged store ---------------------

    def was_read(self, unreadable: str) -> None:
        """Halts the scope if its lease cannot be read, after its watcher has drained; restarts it
        when the lease can be read again. ``unreadable``: why not; empty if it can be.
        """
        before, self._unreadable = self._unreadable, unreadable
        if unreadable and not before:
            self._must_halt = self._granted is not None or self._ends is not None
            if self._granted is not None:
                self._granted.set()
            self._drain()
        elif before and not unreadable:
            self.restart(self.name, "the repair of its lease")

    def _halted(self, watcher: Watcher) -> bool:
        """Whether the scope must halt; shows why."""
        must, self._must_halt = self._must_halt, False
        if must:
            watcher.status.errors.note(self._unreadable)
            watcher.status.enter(WatcherState.HALTED, self._unreadable)
            structlog.get_logger().error("scope.halted", scope=self.name, error=self._unreadable)
        return must

    def stand_by(self, why_unknown: str) -> None:
        """Shows that the watcher waits; ``why_unknown``: why no process is known to follow it."""
        if self._granted is None or self._watcher is None:
            return
        if why_unknown:
            self._watcher.status.enter(WatcherState.STARTING, why_unknown)
        else:
            self._watcher.status.stand_by()

    def stored(self, checkpoint: Checkpoint) -> None:
        """Shows the position that another process has saved."""
        if self.lease is None and self._watcher is not None:
            self._watcher.status.stored(checkpoint)


async def end_in_time(scopes: Mapping[str, LeasedScope], poll: float) -> None:
    """Ends the terms of these scopes when their leases are over. It waits for no answer of the
    store: a thread that waits for SQLite's file cannot be cancelled."""
    while True:
        held = [each.lease for each in scopes.values() if each.lease is not None]
        left = [lease.deadline - lease.clock() for lease in held]
        await anyio.sleep(max(min([poll, *left]), _TICK_SECONDS))
        for each in tuple(scopes.values()):
            each.end_if_over()
