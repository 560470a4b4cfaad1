"""The scopes' leases, while a command replays or discards dead letters without a daemon.

So no process follows the scopes meanwhile, and of two commands one waits: together they would mix
up the order of the letters.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from tailrace.engine.held_lease import HeldLease, boot_clock
from tailrace.errors import LeaseError, LeaseLost, StartRefused, describe
from tailrace.model.lease import Lease, LeaseTable
from tailrace.replicas.ports import LeaseStore
from tailrace.replicas.times import LeaseTimes

T = TypeVar("T")

_ATTEMPTS = 3
"""How often to try to acquire a lease if there is no answer."""

_RELEASE_SECONDS = 2.0
"""How long the release may take. After that, the leases are left to expire."""


@dataclass(eq=False)
class CommandLeases:
    """The leases of ``scopes``, for the command ``owner``.

    An owner is ``NAME/TOKEN``, like a member's id. People see the name; the token distinguishes
    processes with the same name.
    """

    store: LeaseStore
    scopes: Collection[str]
    owner: str
    times: LeaseTimes
    clock: Callable[[], float] = boot_clock
    _held: dict[str, HeldLease] = field(default_factory=dict)
    """By name. Includes a lease whose acquisition had no answer."""

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does the work while all leases are held; cancels it when a lease is over.

        Raises :class:`StartRefused` before the work if another process has the lease of a scope,
        :class:`LeaseLost` if a lease is over, and :class:`LeaseError` if the store fails.
        """
        try:
            await self.store.prepare([*self.scopes])
            for scope in sorted(self.scopes):
                await self._acquire(scope)
            failure: Exception | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._renew, tasks.cancel_scope, name="lease renewal")
                try:
                    return await work()
                except Exception as error:  # noqa: BLE001 - raised below, outside the task group
                    failure = error
                finally:
                    tasks.cancel_scope.cancel()
            raise failure or self._lost()
        finally:
            await self._release()

    def require(self) -> None:
        """Raises :class:`LeaseLost` if a lease is over. Call it before each step of the work."""
        if self._left <= 0:
            raise self._lost()

    async def _acquire(self, scope: str) -> None:
        failure = ""
        for _ in range(_ATTEMPTS):
            table = await self.store.read()
            if reason := table.unreadable.get(scope):
                raise StartRefused(reason)
            seen = table.leases.get(scope, Lease(scope))
            if not seen.free and seen.owner != self.owner:
                raise _refusal(table, seen)
            deadline = self.clock() + self.times.own
            lease = HeldLease(seen.scope, seen.epoch + 1, deadline, self.clock)
            self._held[lease.scope] = lease
            try:
                if await self.store.acquire(seen, self.owner, lease.epoch, self.times.lease):
                    return
            except LeaseError as error:  # the next read shows whether it took effect
                failure = f": {describe(error)}"
        raise LeaseError(f"scope {scope!r}: its lease was not acquired{failure}")

    async def _renew(self, work: anyio.CancelScope) -> None:
        """Renews the leases; cancels the work when a lease is over."""
        pause = self.times.renew
        while True:
            await anyio.sleep(min(pause, max(self._left, 0.0)))
            if self._left <= 0:
                break
            sent, renewed = self.clock(), -1
            with anyio.move_on_after(self._left), suppress(LeaseError):
                renewed = await self.store.renew(self.owner, self._held, self.times.lease)
            for lease in self._held.values():
                if renewed == len(self._held):
                    lease.extend(sent + self.times.own)
                elif renewed >= 0:  # else the outcome is unknown
                    lease.give_up()
            pause = self.times.renew if renewed >= 0 else self.times.poll
        work.cancel()

    @property
    def _left(self) -> float:
        """Seconds until the first lease is over."""
        return min(lease.deadline for lease in self._held.values()) - self.clock()

    async def _release(self) -> None:
        with anyio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(LeaseError):
            for name, lease in self._held.items():
                await self.store.release(name, self.owner, lease.epoch)

    def _lost(self) -> LeaseLost:
        scopes = ", ".join(map(repr, sorted(self.scopes)))
        return LeaseLost(
            f"dead letters of {scopes}: the command stopped: its "
            "lease was not renewed in time, and another replay may begin. What was not "
            "reported as done still waits. Look whether the store answers, and whether a "
            "handler blocks the event loop; then try again"
        )


def _refusal(table: LeaseTable, lease: Lease) -> StartRefused:
    scope, name = lease.scope, lease.owner.rpartition("/")[0]
    if table.alive(lease.owner):
        owner = table.name(lease.owner)
        message = f"scope {scope!r} is followed by {owner}: ask there, or stop that process first"
        return StartRefused(f"{message}. Nothing was done")
    return StartRefused(
        f"scope {scope!r}: its lease belongs to {name}, which replays or discards its dead "
        f"letters, or has ended. Wait until that has ended, or stop it, then try again; if it was "
        f"killed, its lease runs out in {lease.seconds_left:.0f} s",
        may_pass=True,
    )
