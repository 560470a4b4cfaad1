"""The leases of one process: tasks beside its watchers acquire and renew them.

One task only renews, so that no other slow answer delays renewals. Another reads the leases at
every poll: it ends the terms that are over, acquires free leases, and requests leases that this
process should have. If an acquisition had no answer, the leases are read before the next attempt.
A renewal without an answer is sent again; meanwhile the other task reads the leases.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import structlog

from tailrace.engine import Watcher
from tailrace.engine.held_lease import HeldLease, ObservedLease
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointError, LeaseError, describe
from tailrace.model.lease import Lease, LeaseTable, Member, boot_clock
from tailrace.observe.metrics import Metrics
from tailrace.replicas.acquisition import Acquisition
from tailrace.replicas.answer_time import AnswerTime
from tailrace.replicas.assignment import intent
from tailrace.replicas.lease_view import LeaseView
from tailrace.replicas.leased_scope import Entered, LeasedScope, end_in_time
from tailrace.replicas.ports import LeaseStore
from tailrace.replicas.scope_reports import report_text
from tailrace.replicas.times import LeaseTimes
from tailrace.stream import Interrupt


@dataclass(eq=False)
class Leases:
    """The leases of the member ``me``. :meth:`add` and :meth:`remove` change its scopes, ``names``.

    The others: see :class:`tailrace.replicas.leased_scope.LeasedScope`.
    """

    names: Collection[str]
    me: Member
    store: LeaseStore
    checkpoints: CheckpointStore
    metrics: Metrics
    times: LeaseTimes
    grace_seconds: float
    restart: Callable[[str, str], object]
    clock: Callable[[], float] = boot_clock
    entered: Entered = nullcontext
    _scopes: dict[str, LeasedScope] = field(default_factory=dict)
    _acquisition: Acquisition = field(init=False)
    _view: LeaseView = field(init=False)
    _answers: AnswerTime = field(init=False)
    _present: frozenset[str] = frozenset()
    """The ids of the members when they were last read."""
    _changed_at: float = 0.0
    """When this process last noticed that a member had joined or left."""
    _ignored: frozenset[str] = frozenset()
    """The names of the foreign records among the leases when they were last read."""
    _read_now: anyio.Event = field(default_factory=anyio.Event)
    _failures: dict[str, str] = field(default_factory=dict)
    """By kind of call, why the last one failed; absent if it did not."""

    def __post_init__(self) -> None:
        self._log = structlog.get_logger().bind(member=self.me.name)
        self._view = LeaseView(self.times, self.clock)
        self._answers = AnswerTime(self.me.name, self.times)
        self._acquisition = Acquisition(
            self.store, self.me.id, self.checkpoints, self.metrics, self.times, self.clock
        )
        self.add(self.names)

    def add(self, names: Collection[str]) -> None:
        """Scopes that this process configures from now on; their leases are created if missing."""
        self._acquisition.prepare(names)
        # One that is being removed is kept: it may still have the lease.
        self._scopes |= {name: self._scope(name) for name in names if name not in self._scopes}
        self._configure(self._scopes)

    async def remove(self, name: str) -> None:
        """A scope that this process no longer configures. Its watcher has ended."""
        scope = self._scopes.pop(name)
        self._configure(self._scopes)
        await scope.release()

    def drain_within(self, grace_seconds: float) -> None:
        """How long running calls may take from now on before a scope is handed over."""
        self.grace_seconds = grace_seconds
        for scope in self._scopes.values():
            scope.grace_seconds = grace_seconds

    def _configure(self, names: Collection[str]) -> None:
        self.names = scopes = frozenset(names)
        self.me = replace(self.me, scopes=scopes)

    def _scope(self, name: str) -> LeasedScope:
        calls = self.restart, self._waits, self.entered
        return LeasedScope(name, self.store, self.me.id, self.grace_seconds, *calls)

    async def follow(self, watcher: Watcher, stop: Interrupt) -> None:
        """Runs the watcher whenever this process has its scope's lease, until the stop."""
        await self._scopes[watcher.name].follow(watcher, stop)

    async def run(self, stop: Interrupt) -> None:
        """Keeps the leases until it is cancelled; after the ``stop``, acquires no more."""
        self._changed_at = self.clock()
        await self._tried(partial(self.store.prepare, self.names), "prepare")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew_regularly, stop, name="lease renewal")
            tasks.start_soon(end_in_time, self._scopes, self.times.poll, name="ends of leases")
            tasks.start_soon(self._read_regularly, name="lease reads")
            tasks.start_soon(self._watch_positions, name="positions of other members")

    async def close(self) -> None:
        """Releases all leases at the end of the process, after :meth:`run` has ended."""
        await self._acquisition.renounce()
        for scope in self._scopes.values():
            await scope.release()
        with anyio.move_on_after(self.times.poll, shield=True):
            await self._tried(partial(self.store.leave, self.me.id), "leave")

    @property
    def _held(self) -> Mapping[str, HeldLease]:
        return {each.name: each.lease for each in self._scopes.values() if each.lease is not None}

    # --- renewal -------------------------------------------------------------------------------

    async def _renew_regularly(self, stop: Interrupt) -> None:
        while True:
            began, leaving = self.clock(), stop.is_set
            self.me = replace(self.me, leaving=leaving)
            renewed = False
            with anyio.move_on_after(self._until_over(self.times.answer)):
                renewed = await self._tried(self._renew, "renewal")
            for scope in self._scopes.values():
                scope.end_if_over()
            pause = self.times.renew if renewed else self.times.poll
            wait = self._until_over(max(pause - (self.clock() - began), 0.0))
            await (anyio.sleep(wait) if leaving else stop.sleep(wait))

    def _until_over(self, most: float) -> float:
        """Seconds until the first lease is over, but at most ``most``."""
        left = (lease.deadline - self.clock() for lease in self._held.values())
        return max(min([most, *left]), 0.0)

    async def _renew(self) -> None:
        """Renews all leases and the heartbeat in one command; if in doubt, requests a read."""
        held = {name: each for name, each in self._held.items() if self._scopes[name].renewable}
        self.me = replace(self.me, report=report_text(self._scopes.values()))
        sent, renewed = self.clock(), -1
        try:
            renewed = await self.store.renew(self.me.id, held, self.times.lease, self.me)
        finally:
            if renewed != len(held):
                self._read_now.set()
        if renewed == len(held):
            for lease in held.values():
                lease.extend(sent + self.times.own)

    # --- reads ---------------------------------------------------------------------------------

    async def _read_regularly(self) -> None:
        while True:
            self._read_now = anyio.Event()
            done = False
            with anyio.move_on_after(self.times.lease) as patience:
                done = await self._tried(self._read, "read")
            if patience.cancelled_caught:
                self._failed("read", f"the leases were not read within {self.times.lease:g} s")
            if not done:
                self._view.failed(self._failures.get("read", ""))
                await anyio.sleep(self.times.poll)
                continue
            with anyio.move_on_after(self._view.until_expiry(self.times.poll)):
                await self._read_now.wait()

    async def _read(self) -> None:
        sent = self.clock()
        table = (await self.store.read()).of(self.names)
        self._answers.measured(self.clock() - sent, self.clock())
        self._view.took(table, sent)
        await self._note_records(table)
        present = frozenset(member.id for member in table.members)
        if present != self._present:
            self._present, self._changed_at = present, sent
        for name in self._held:
            if name not in table.unreadable:
                self._compare(self._scopes[name], table.leases.get(name, Lease(name)), sent)
        wanted = intent(
            table,
            self.me,
            [name for name, scope in self._scopes.items() if scope.waiting],
            self.times,
            held=len(self._held),
            stable=sent - self._changed_at >= self.times.stable,
        )
        acquiring = {lease.scope for lease in wanted.acquire}
        for scope in self._scopes.values():
            if scope.name not in acquiring:  # not a standby: ready only when its stream is open
                self._show(scope)
        async with anyio.create_task_group() as tasks:  # each command waits for a majority
            for lease in [*self._acquisition.unsure(table), *wanted.acquire]:
                tasks.start_soon(self._tried, partial(self._acquire, lease), "acquisition")
        for lease in wanted.request:
            await self.store.request(lease, self.me.id)
            self._log.info("lease.requested", scope=lease.scope, of=table.name(lease.owner))

    async def _note_records(self, table: LeaseTable) -> None:
        """Tells the scopes whether their records can be read; creates those that are missing."""
        for name, scope in self._scopes.items():
            scope.was_read(table.unreadable.get(name, ""))
        foreign = table.unreadable.keys() - self._scopes.keys()
        for name in foreign - self._ignored:
            structlog.get_logger().warning("lease.record_ignored", error=table.unreadable[name])
        self._ignored = frozenset(foreign)
        if missing := set(self.names) - table.leases.keys() - table.unreadable.keys():
            await self.store.prepare(missing)  # the first attempt failed, or they were removed

    def _compare(self, scope: LeasedScope, stored: Lease, sent: float) -> None:
        """Compares a held lease with the store's, as read by a command sent at ``sent``."""
        lease = scope.lease
        if lease is None:
            return
        if stored.free or (stored.owner, stored.epoch) != (self.me.id, lease.epoch):
            scope.lose("the store says it expired or belongs to another process")
            return
        lease.extend(sent + stored.seconds_left - (self.times.lease - self.times.own))
        others = {each.id: each.name for each in self._view.members if each.id != self.me.id}
        if stored.wanted_by in others:
            scope.hand_over(others[stored.wanted_by])

    async def _acquire(self, seen: Lease) -> None:
        scope = self._scopes.get(seen.scope) or self._scope(seen.scope)
        lease = await self._acquisition.acquire(seen)
        if lease is not None:
            scope.grant(lease)
            if self._scopes.get(seen.scope) is not scope:  # it was removed meanwhile
                await scope.release()

    async def _watch_positions(self) -> None:
        """Reads positions of scopes that others follow, so that the lag of a hung owner shows."""
        while True:
            try:
                with anyio.move_on_after(self.times.lease):
                    for checkpoint in await self.checkpoints.list():
                        scope = self._scopes.get(checkpoint.scope)
                        if scope is not None and not checkpoint.is_reset:
                            scope.stored(checkpoint)
            except CheckpointError as error:
                self._log.debug("positions.unknown", error=describe(error))
            await anyio.sleep(self.times.lease / 2)

    def observed(self, name: str) -> ObservedLease | None:
        """What this process knows of a scope's lease; ``None`` if it has not read the lease."""
        scope = self._scopes.get(name)
        if scope is None:
            return None
        if scope.lease is not None and not scope.lease.over:
            return ObservedLease(self.me.name, scope.lease.epoch, held=True)
        observed = self._view.observed(name, self.me.id)
        if observed is None:
            return None
        trouble = "" if observed.owner else self._answers.trouble
        reason = "; ".join(filter(None, (observed.reason, trouble)))
        return replace(observed, reason=reason, outlived=scope.outlived)

    def degraded(self) -> list[str]:
        """What endangers all leases while changes flow."""
        return [f"replicas: {self._answers.trouble}"] if self._answers.trouble else []

    def members(self) -> Sequence[Mapping[str, object]]:
        """The members for ``/status``, in JSON types."""
        return self._view.document(self.me.id)

    def _waits(self) -> None:
        for scope in self._scopes.values():
            self._show(scope)
        self._read_now.set()

    def _show(self, scope: LeasedScope) -> None:
        failure = next(iter(self._failures.values()), "reads the leases")
        scope.stand_by(failure if self._view.table is None else "")

    async def _tried(self, call: Callable[[], Awaitable[object]], kind: str) -> bool:
        """Makes a call; returns False if the store failed."""
        try:
            await call()
        except LeaseError as error:
            self._failed(kind, describe(error))
            return False
        self._failures.pop(kind, None)
        return True

    def _failed(self, kind: str, error: str) -> None:
        """Logs only the first failure in a row of calls of this kind: others may succeed."""
        log = self._log.debug if kind in self._failures else self._log.warning
        log("lease.store_failed", error=error)
        self._failures[kind] = error
