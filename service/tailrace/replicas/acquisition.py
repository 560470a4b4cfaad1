"""Acquires leases, and frees those whose acquisition had no answer when the process ends."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio
import structlog

from tailrace.engine import HeldLease
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointCorrupt, CheckpointError, LeaseError, describe
from tailrace.model.lease import Lease, LeaseTable
from tailrace.observe.metrics import Metrics
from tailrace.replicas.leased_scope import RELEASE_SECONDS
from tailrace.replicas.ports import LeaseStore
from tailrace.replicas.times import LeaseTimes

_REASONS = ("first", "expired", "requested", "released")
"""Why a lease could be acquired: labels of the metric."""

_RENOUNCE_SECONDS = 5.0
"""How long a process that ends tries to free a lease that it may have acquired."""


@dataclass(eq=False)
class Acquisition:
    """Acquires leases for the member with the id ``owner``."""

    store: LeaseStore
    owner: str
    checkpoints: CheckpointStore
    metrics: Metrics
    times: LeaseTimes
    clock: Callable[[], float]
    _unsure: dict[str, tuple[Lease, int]] = field(default_factory=dict)
    """By scope: the lease as read, and the epoch, of an acquisition without an answer so far."""

    def prepare(self, scopes: Iterable[str]) -> None:
        """Counts the transfers of these scopes from 0."""
        for scope in scopes:
            for reason in _REASONS:
                self.metrics.lease_transfers.labels(scope, reason)

    def unsure(self, table: LeaseTable) -> list[Lease]:
        """Leases that this process has, according to the table, although it had no answer."""
        leases = (table.leases.get(scope, Lease(scope)) for scope in self._unsure)
        return [lease for lease in leases if lease.owner == self.owner]

    async def acquire(self, seen: Lease) -> HeldLease | None:
        """Acquires a lease; ``None`` if another acquisition was first. Raises
        :class:`LeaseError`."""
        scope, stored = seen.scope, 0
        try:
            if (checkpoint := await self.checkpoints.load(scope)) is not None:
                stored = checkpoint.epoch
        except CheckpointCorrupt:
            pass  # the watcher reads it again, halts and reports it
        except CheckpointError as error:
            raise LeaseError(describe(error)) from error
        epoch, sent, unsure = max(seen.epoch, stored) + 1, self.clock(), scope in self._unsure
        self._unsure[scope] = seen, epoch
        acquired = await self.store.acquire(seen, self.owner, epoch, self.times.lease)
        if acquired or not unsure:  # else the one without an answer may have come first
            self._unsure.pop(scope, None)
        if not acquired:
            return None
        reason = self._reason(seen)
        structlog.get_logger().info("lease.acquired", scope=scope, epoch=epoch, reason=reason)
        self.metrics.lease_transfers.labels(scope, reason).inc()
        return HeldLease(scope, epoch, sent + self.times.own, self.clock)

    def _reason(self, seen: Lease) -> str:
        """Why the lease could be acquired: one of ``_REASONS``."""
        if not seen.epoch:
            return "first"
        if seen.owner:
            return "expired"
        return "requested" if seen.wanted_by == self.owner else "released"

    async def renounce(self) -> None:
        """Frees the leases whose acquisition had no answer, even if the store executes it later."""
        with anyio.CancelScope(shield=True):  # each call is bounded
            async with anyio.create_task_group() as tasks:
                for seen, epoch in self._unsure.values():
                    tasks.start_soon(self._renounce, seen, epoch)

    async def _renounce(self, seen: Lease, epoch: int) -> None:
        """Sends the same acquisition again, then the release.

        If the first one comes after that, the lease no longer has the epoch that it expects.
        """
        scope = seen.scope
        log, failure = structlog.get_logger().bind(scope=scope, epoch=epoch), "no answer"
        with anyio.move_on_after(_RENOUNCE_SECONDS):
            while True:
                try:
                    await self.store.acquire(seen, self.owner, epoch, RELEASE_SECONDS)
                    await self.store.release(scope, self.owner, epoch)
                    log.info("lease.released", reason="the acquisition had no answer")
                    return
                except LeaseError as error:
                    failure = describe(error)
                    await anyio.sleep(_RENOUNCE_SECONDS / 20)
        log.info("lease.not_released", error=failure, consequence="it expires")
