"""The turns of one process: the periods in which it has a scope's lease and runs its watcher.

A turn begins when a lease is acquired. It ends when the lease is handed over or lost, when the
scope is fenced, or when the process stops. :mod:`tailrace.replicas.leases` acquires and renews.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import anyio
import structlog

from tailrace.engine import HeldLease, Supervisor, Watcher, WatcherState
from tailrace.errors import LeaseError, describe
from tailrace.model.lease import Lease, Member
from tailrace.replicas.ports import LeaseStore
from tailrace.stream import Interrupt

_RELEASE_SECONDS = 2.0
"""How long the release of a lease may take. After that, the lease is left to expire."""

_RENOUNCE_SECONDS = 5.0
"""How long a process that ends tries to free a lease that it may have acquired."""


@dataclass(slots=True, eq=False)
class Turn:
    """A held lease. While its watcher runs, ``ends`` drains it and ``running`` cancels it."""

    lease: HeldLease
    ends: Interrupt | None = None
    running: anyio.CancelScope | None = None

    @property
    def renewable(self) -> bool:
        """False after the watcher was cancelled: the lease then expires even if handlers hang."""
        return self.running is None or not self.running.cancel_called


@dataclass(eq=False)
class Turns:
    """The turns of a ``supervisor``'s watchers.

    ``changed`` is called when a watcher begins to wait for its lease.
    """

    store: LeaseStore
    me: Member
    supervisor: Supervisor
    grace_seconds: float
    """How long handlers may take to finish started calls when a scope is handed over."""
    changed: Callable[[], None] = lambda: None
    held: dict[str, Turn] = field(default_factory=dict)
    waiting: dict[str, tuple[Watcher, anyio.Event]] = field(default_factory=dict)
    """By scope: the watcher that waits for a lease, and the event that is set with the lease."""
    unreadable: frozenset[str] = frozenset()
    """The names of the records that could not be read when the leases were last read."""
    running: set[str] = field(default_factory=set)
    """The scopes whose watcher runs here: even without the lease, until its handlers have ended."""
    halting: dict[str, str] = field(default_factory=dict)
    """By scope whose lease cannot be read, why; until its watcher has halted."""

    async def follow(self, watcher: Watcher, stop: Interrupt) -> None:
        """Runs the watcher for one turn after another, until the stop or until its scope has ended.

        A scope that halted, or ended as configured, keeps its lease: another process would only
        end it again.
        """
        name = watcher.name
        while not stop.is_set:
            await self.release(name)  # the lease that an ended watcher of this scope has kept
            turn = await self._granted(watcher, stop)
            if self._halted(watcher):
                return
            if turn is None:
                continue
            keeps = False
            self.running.add(name)
            try:
                with stop.child() as turn.ends, anyio.CancelScope() as turn.running:
                    await watcher.run(turn.ends, turn.lease)
                    keeps = not (turn.ends.is_set or watcher.fenced)
            finally:
                turn.ends = turn.running = None
                self.running.discard(name)
                if not keeps:
                    watcher.plan.rows.leave()
                    await self.release(name)
            if self._halted(watcher) or keeps:
                return
        if watcher.status.state is WatcherState.STANDBY:
            watcher.status.enter(WatcherState.STOPPED)

    async def _granted(self, watcher: Watcher, stop: Interrupt) -> Turn | None:
        """Waits for the lease. Returns ``None`` after a stop, or if it was lost again at once."""
        granted = anyio.Event()
        self.waiting[watcher.name] = watcher, granted
        self.changed()
        try:
            with stop.interrupts():
                await granted.wait()
        finally:
            del self.waiting[watcher.name]
        return self.held.get(watcher.name)

    def grant(self, lease: HeldLease) -> None:
        """Begins a turn with an acquired lease."""
        self.held[lease.scope] = Turn(lease)
        if lease.scope in self.waiting:
            self.waiting[lease.scope][1].set()

    async def release(self, scope: str) -> None:
        """Ends the turn, if there is one. If the release fails, the lease expires by itself."""
        turn = self.held.pop(scope, None)
        if turn is None:
            return
        turn.lease.give_up()
        log = structlog.get_logger().bind(scope=scope, epoch=turn.lease.epoch)
        with anyio.move_on_after(_RELEASE_SECONDS, shield=True):
            try:
                await self.store.release(scope, self.me.id, turn.lease.epoch)
                log.info("lease.released")
            except LeaseError as error:
                log.info("lease.not_released", error=describe(error), consequence="it runs out")

    async def renounce(self, seen: Lease, epoch: int) -> None:
        """Frees a lease whose acquisition had no answer, even if the store executes it later.

        The same acquisition is sent again, then the release. If the first one comes after that, the
        lease no longer has the epoch that it expects.
        """
        scope = seen.scope
        log, failure = structlog.get_logger().bind(scope=scope, epoch=epoch), "no answer"
        with anyio.move_on_after(_RENOUNCE_SECONDS, shield=True):
            while True:
                try:
                    await self.store.acquire(seen, self.me.id, epoch, _RELEASE_SECONDS)
                    await self.store.release(scope, self.me.id, epoch)
                    log.info("lease.released", reason="the acquisition had no answer")
                    return
                except LeaseError as error:
                    failure = describe(error)
                    await anyio.sleep(_RENOUNCE_SECONDS / 20)
        log.info("lease.not_released", error=failure, consequence="it runs out")

    def lose(self, scope: str, reason: str) -> None:
        """Another process may have the scope: cancels the watcher; nothing is saved any more."""
        turn = self.held.pop(scope)
        turn.lease.give_up()
        log = structlog.get_logger().bind(scope=scope, epoch=turn.lease.epoch)
        log.info("lease.lost", reason=reason)
        if turn.ends is None or turn.running is None:
            self.supervisor.restart(scope, by="the loss of its lease")
        else:
            turn.ends.set()
            turn.running.cancel()
            for watcher in self.supervisor.watchers:
                if watcher.name == scope:
                    watcher.status.stand_by()

    def hand_over(self, scope: str, to: str) -> None:
        """Lets the watcher drain, and cancels it after the grace period. Its end releases the
        lease."""
        turn = self.held[scope]
        if turn.ends is None or turn.running is None:
            self.supervisor.restart(scope, by="a hand-over")
        elif not turn.ends.is_set:
            log = structlog.get_logger().bind(scope=scope, epoch=turn.lease.epoch)
            log.info("lease.handed_over", to=to)
            turn.ends.set()
            turn.running.deadline = anyio.current_time() + self.grace_seconds

    def heed(self, unreadable: Mapping[str, str]) -> None:
        """Halts the scopes whose lease cannot be read, and restarts them when it can be again.

        ``unreadable``: by the name of a lease or another record, why.
        """
        scopes = {watcher.name for watcher in self.supervisor.watchers}
        for name in unreadable.keys() - self.unreadable:
            if name in scopes:
                self._halt(name, unreadable[name])
            else:
                structlog.get_logger().warning("lease.record_ignored", error=unreadable[name])
        for name in scopes & (self.unreadable - unreadable.keys()):
            self.supervisor.restart(name, by="the repair of its lease")
        self.unreadable = frozenset(unreadable)

    def _halt(self, scope: str, reason: str) -> None:
        """Halts a scope whose lease cannot be read, after its watcher has drained."""
        turn = self.held.get(scope)
        if scope in self.waiting:
            self.halting[scope] = reason
            self.waiting[scope][1].set()
        elif turn is not None and turn.ends is not None and turn.running is not None:
            self.halting[scope] = reason
            turn.ends.set()
            turn.running.deadline = anyio.current_time() + self.grace_seconds

    def _halted(self, watcher: Watcher) -> bool:
        """Whether the scope must halt; shows why."""
        reason = self.halting.pop(watcher.name, "")
        if reason:
            watcher.status.errors.note(reason)
            watcher.status.enter(WatcherState.HALTED, reason)
            structlog.get_logger().error("scope.halted", scope=watcher.name, error=reason)
        return bool(reason)

    def overdue(self) -> Iterator[str]:
        """The scopes whose lease is over, but whose turn is not."""
        return (scope for scope, turn in tuple(self.held.items()) if turn.lease.over)
