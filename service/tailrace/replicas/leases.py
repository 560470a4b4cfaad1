"""The leases of one process: tasks beside its watchers acquire and renew them.

One task only renews, so that no other slow answer delays renewals. Another reads the leases at
every poll: it ends the turns that are over, acquires free leases, and asks for leases that this
process should have. If an acquisition had no answer, the leases are read before the next attempt.
A renewal without an answer is sent again; meanwhile the other task reads the leases.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import structlog

from tailrace.engine import HeldLease, Watcher, WatcherState
from tailrace.engine.held_lease import ObservedLease, boot_clock
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointCorrupt, CheckpointError, LeaseError, describe
from tailrace.model.lease import Lease
from tailrace.observe.metrics import Metrics
from tailrace.replicas.assignment import wishes
from tailrace.replicas.lease_view import LeaseView
from tailrace.replicas.ports import LeaseStore
from tailrace.replicas.times import LeaseTimes
from tailrace.replicas.turns import Turn, Turns
from tailrace.stream import Interrupt

_REASONS = ("first", "expired", "requested", "released")
"""Why a lease could be acquired: labels of the metric."""


@dataclass(eq=False)
class Leases:
    """The leases of the process with these ``turns``. Create it after the supervisor has its
    watchers."""

    turns: Turns
    checkpoints: CheckpointStore
    metrics: Metrics
    times: LeaseTimes
    clock: Callable[[], float] = boot_clock
    _view: LeaseView = field(init=False)
    _present: frozenset[str] = frozenset()
    """The ids of the members when they were last read."""
    _changed_at: float = 0.0
    """When this process last noticed that a member had joined or left."""
    _unsure: dict[str, tuple[Lease, int]] = field(default_factory=dict)
    """By scope: the lease as seen, and the epoch, of an acquisition without an answer so far."""
    _look_now: anyio.Event = field(default_factory=anyio.Event)
    _troubles: dict[str, str] = field(default_factory=dict)
    """By kind of call, why the last one failed; absent if it did not."""

    def __post_init__(self) -> None:
        self._view = LeaseView(self.times, self.clock)
        for watcher in self.turns.supervisor.watchers:
            watcher.status.lease = partial(self.observed, watcher.name)
            for reason in _REASONS:
                self.metrics.lease_transfers.labels(watcher.name, reason)  # 0 before the first
        self.turns.me = replace(self.turns.me, scopes=frozenset(self._scopes))
        self.turns.supervisor.follow = self.turns.follow
        self.turns.changed = self._changed
        self._log = structlog.get_logger().bind(member=self.turns.me.name)

    @property
    def _store(self) -> LeaseStore:
        return self.turns.store

    @property
    def _scopes(self) -> Set[str]:
        return {watcher.name for watcher in self.turns.supervisor.watchers}

    async def run(self, stop: Interrupt) -> None:
        """Keeps the leases until it is cancelled; after the ``stop``, acquires no more."""
        self._changed_at = self.clock()
        await self._tried(partial(self._store.prepare, self._scopes), "prepare")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew_regularly, stop, name="lease renewal")
            tasks.start_soon(self._look_regularly, name="lease look")
            tasks.start_soon(self._watch_positions, name="positions of other members")

    async def close(self) -> None:
        """Releases all leases at the end of the process, after :meth:`run` has ended."""
        with anyio.CancelScope(shield=True):  # each call is bounded
            async with anyio.create_task_group() as tasks:
                for seen, epoch in self._unsure.values():
                    tasks.start_soon(self.turns.renounce, seen, epoch)
        for scope in tuple(self.turns.held):
            await self.turns.release(scope)
        with anyio.move_on_after(self.times.poll, shield=True):
            await self._tried(partial(self._store.leave, self.turns.me.id), "leave")

    # --- renewal -------------------------------------------------------------------------------

    async def _renew_regularly(self, stop: Interrupt) -> None:
        while True:
            began, leaving = self.clock(), stop.is_set
            self.turns.me = replace(self.turns.me, leaving=leaving)
            renewed = False
            with anyio.move_on_after(self._until_over(self.times.renew)):
                renewed = await self._tried(self._renew, "renewal")
            for scope in self.turns.overdue():
                self.turns.lose(scope, "it was not renewed in time")
            pause = self.times.renew if renewed else self.times.poll
            wait = self._until_over(max(pause - (self.clock() - began), 0.0))
            await (anyio.sleep(wait) if leaving else stop.sleep(wait))

    def _until_over(self, most: float) -> float:
        """Seconds until the first lease is over, but at most ``most``."""
        left = (turn.lease.deadline - self.clock() for turn in self.turns.held.values())
        return max(min([most, *left]), 0.0)

    async def _renew(self) -> None:
        """Renews all leases and the heartbeat in one command; if in doubt, requests a look."""
        turns = {scope: turn for scope, turn in self.turns.held.items() if turn.renewable}
        sent, renewed = self.clock(), -1
        try:
            me = self.turns.me
            renewed = await self._store.renew(me.id, turns, self.times.lease, me)
        finally:
            if renewed != len(turns):
                self._look_now.set()
        if renewed == len(turns):
            for turn in turns.values():
                turn.lease.extend(sent + self.times.own)

    # --- looks ---------------------------------------------------------------------------------

    async def _look_regularly(self) -> None:
        while True:
            self._look_now = anyio.Event()
            looked = False
            with anyio.move_on_after(self.times.lease) as patience:
                looked = await self._tried(self._look, "look")
            if patience.cancelled_caught:
                self._failed("look", f"the leases were not read within {self.times.lease:g} s")
            if not looked:
                self._view.trouble = self._troubles.get("look", "")
                await anyio.sleep(self.times.poll)
                continue
            with anyio.move_on_after(self._until_next_look()):
                await self._look_now.wait()

    def _until_next_look(self) -> float:
        """Seconds until the next poll, or until a lease expires if that is earlier."""
        sharing = self._view.sharing
        leases = sharing.leases.values() if sharing is not None else ()
        left = (lease.seconds_left for lease in leases if not lease.free)
        return min([self.times.poll, *left])

    async def _look(self) -> None:
        sent = self.clock()
        sharing = (await self._store.read()).of(self._scopes)
        self._view.took(sharing, sent)
        self.turns.heed(sharing.unreadable)
        if missing := self._scopes - sharing.leases.keys() - sharing.unreadable.keys():
            await self._store.prepare(missing)  # the first attempt failed, or they were removed
        present = frozenset(member.id for member in sharing.members)
        if present != self._present:
            self._present, self._changed_at = present, sent
        for scope, turn in tuple(self.turns.held.items()):
            if scope not in sharing.unreadable:
                self._compare(turn, sharing.leases.get(scope, Lease(scope)), sent)
        wished = wishes(
            sharing,
            self.turns.me,
            self.turns.waiting,
            self.times,
            held=len(self.turns.held),
            stable=sent - self._changed_at >= self.times.stable,
        )
        acquiring = {lease.scope for lease in wished.acquire}
        for scope, (watcher, _) in self.turns.waiting.items():
            if scope not in acquiring:  # not a standby: ready only when its stream is open
                self._tell(watcher)
        mine = [
            lease
            for scope in tuple(self._unsure)
            if (lease := sharing.leases.get(scope, Lease(scope))).owner == self.turns.me.id
        ]
        async with anyio.create_task_group() as tasks:  # each command waits for a majority
            for lease in [*mine, *wished.acquire]:
                tasks.start_soon(self._tried, partial(self._acquire, lease), "acquisition")
        for lease in wished.ask:
            await self._store.ask(lease, self.turns.me.id)
            self._log.info("lease.requested", scope=lease.scope, of=sharing.name(lease.owner))

    def _compare(self, turn: Turn, lease: Lease, sent: float) -> None:
        """Compares a turn with its lease in the store, as read by a command sent at ``sent``."""
        if lease.free or (lease.owner, lease.epoch) != (self.turns.me.id, turn.lease.epoch):
            self.turns.lose(lease.scope, "the store says it expired or belongs to another process")
            return
        turn.lease.extend(sent + lease.seconds_left - (self.times.lease - self.times.own))
        others = {each.id: each.name for each in self._view.members if each.id != self.turns.me.id}
        if lease.wanted_by in others:
            self.turns.hand_over(lease.scope, others[lease.wanted_by])

    async def _acquire(self, seen: Lease) -> None:
        scope, me = seen.scope, self.turns.me.id
        stored = 0
        try:
            if (checkpoint := await self.checkpoints.load(scope)) is not None:
                stored = checkpoint.epoch
        except CheckpointCorrupt:
            pass  # the watcher reads it again, halts and reports it
        except CheckpointError as error:
            raise LeaseError(describe(error)) from error
        epoch, sent = max(seen.epoch, stored) + 1, self.clock()
        self._unsure[scope] = seen, epoch
        acquired = await self._store.acquire(seen, me, epoch, self.times.lease)
        self._unsure.pop(scope, None)
        if not acquired:
            return
        reason = _transfer(seen, me)
        self._log.info("lease.acquired", scope=scope, epoch=epoch, reason=reason)
        self.metrics.lease_transfers.labels(scope, reason).inc()
        self.turns.grant(HeldLease(scope, epoch, sent + self.times.own, self.clock))

    async def _watch_positions(self) -> None:
        """Reads positions of scopes that others follow, so that the lag of a hung owner shows."""
        while True:
            try:
                with anyio.move_on_after(self.times.lease):
                    stored = {each.scope: each for each in await self.checkpoints.list()}
                    for watcher in self.turns.supervisor.watchers:
                        checkpoint = stored.get(watcher.name)
                        if checkpoint is None or checkpoint.is_reset:
                            continue
                        if watcher.name not in self.turns.held:
                            watcher.status.stored(checkpoint)
            except CheckpointError as error:
                self._log.debug("positions.unknown", error=describe(error))
            await anyio.sleep(self.times.lease / 2)

    # --- status --------------------------------------------------------------------------------

    def observed(self, scope: str) -> ObservedLease | None:
        """What this process knows of a scope's lease; ``None`` if it has not read the lease."""
        me, turn = self.turns.me, self.turns.held.get(scope)
        if turn is not None and not turn.lease.over:
            return ObservedLease(me.name, turn.lease.epoch, held=True)
        found = self._view.observed(scope, me.id)
        return found and replace(found, outlived=scope in self.turns.running)

    def members(self) -> Sequence[Mapping[str, object]]:
        """The members for ``/status``, in JSON types."""
        return self._view.document(self.turns.me.id)

    def _changed(self) -> None:
        for watcher, _ in self.turns.waiting.values():
            self._tell(watcher)
        self._look_now.set()

    def _tell(self, watcher: Watcher) -> None:
        if self.observed(watcher.name) is None:
            told = next(iter(self._troubles.values()), "reads the leases")
            watcher.status.enter(WatcherState.STARTING, told)
        else:
            watcher.status.stand_by()

    async def _tried(self, call: Callable[[], Awaitable[object]], kind: str) -> bool:
        """Runs a call; returns False if the store failed."""
        try:
            await call()
        except LeaseError as error:
            self._failed(kind, describe(error))
            return False
        self._troubles.pop(kind, None)
        return True

    def _failed(self, kind: str, error: str) -> None:
        """Logs only the first failure in a row of calls of this kind: others may succeed."""
        log = self._log.debug if kind in self._troubles else self._log.warning
        log("lease.store_failed", error=error)
        self._troubles[kind] = error


def _transfer(seen: Lease, me: str) -> str:
    """Why the lease could be acquired: one of ``_REASONS``."""
    if not seen.epoch:
        return "first"
    if seen.owner:
        return "expired"
    return "requested" if seen.wanted_by == me else "released"
